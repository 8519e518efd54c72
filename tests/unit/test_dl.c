/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The loader of foreign libraries, over stand-ins (tests/fake) and damaged copies of them. */
#include "fake/fake.h"
#include <gpusys/dl.h>
#include <gpusys/log.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define FAKE_SYMBOLS(ROW, table)                                                                             \
    ROW(table, REQUIRED, fake_add, NULL, NULL)                                                               \
    ROW(table, OPTIONAL, fake_mode, "FAKE_1", NULL)                                                          \
    ROW(table, OPTIONAL, fake_new, NULL, "2.0")
GPUSYS_DL_TABLE(fake_table, FAKE_SYMBOLS);
GPUSYS_DL_SYMBOLS(fake_symbols, fake_table, FAKE_SYMBOLS);

#define STRICT_SYMBOLS(ROW, table)                                                                           \
    ROW(table, REQUIRED, fake_add, NULL, NULL)                                                               \
    ROW(table, REQUIRED, fake_new, "FAKE_2", "2.0")
GPUSYS_DL_TABLE(strict_table, STRICT_SYMBOLS);
GPUSYS_DL_SYMBOLS(strict_symbols, strict_table, STRICT_SYMBOLS);

#define SONAME   "libgpusysfake.so.2"
#define VARIABLE "GPUSYS_TEST_FAKE"

static char folder[] = "/tmp/gpusys-dl-XXXXXX";

static struct gpusys_dl_library describe(const char *const *sonames)
{
    return (struct gpusys_dl_library){.size = sizeof(struct gpusys_dl_library),
                                      .name = "Fake",
                                      .hint = "install the package libfake2",
                                      .path_variable = VARIABLE,
                                      .sonames = sonames,
                                      .symbols = fake_symbols,
                                      .n_symbols = sizeof fake_symbols / sizeof *fake_symbols,
                                      .table_bytes = sizeof(struct fake_table),
                                      .flags = GPUSYS_DL_MAY_UNLOAD};
}

/* The text of a path in the test's own folder; five live at once. */
static const char *in_folder(const char *name)
{
    static char paths[5][128];
    static int next;
    char *path = paths[next++ % 5];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static size_t read_fake(const char *name, unsigned char **bytes)
{
    char path[512];
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", FAKE_FOLDER, name);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &status) == 0);
    *bytes = malloc((size_t)status.st_size);
    assert_non_null(*bytes);
    assert_int_equal(read(fd, *bytes, (size_t)status.st_size), status.st_size);
    close(fd);
    return (size_t)status.st_size;
}

static const char *write_copy(const char *name, const void *bytes, size_t size)
{
    const char *path = in_folder(name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    close(fd);
    return path;
}

static int try_open(const char *path, struct gpusys_error *error)
{
    const char *const names[] = {path, NULL};
    struct gpusys_dl_library library = describe(names);
    struct fake_table table, untouched;
    struct gpusys_dl *dl = NULL;
    memset(&table, 0x5a, sizeof table);
    memset(&untouched, 0x5a, sizeof untouched);
    int code = gpusys_dl_open(&dl, &library, &table, error);
    assert_null(dl);
    assert_memory_equal(&table, &untouched, sizeof table);
    assert_int_equal(gpusys_dl_open(&dl, &library, &table, NULL), code);
    assert_int_equal(error->code, code);
    assert_int_equal(error->domain, GPUSYS_DOMAIN_LOADER);
    return code;
}

static void opens_the_first_soname_that_loads(void **state)
{
    (void)state;
    static const char *const names[] = {"libgpusysfake.so.9", SONAME, "libgpusysfakeold.so", NULL};
    struct gpusys_dl_library library = describe(names);
    struct fake_table table;
    struct gpusys_dl *dl;
    struct gpusys_error error = {.code = 77};
    char expected[512];
    assert_int_equal(gpusys_dl_open(&dl, &library, &table, &error), 0);
    assert_int_equal(error.code, 77); /* success leaves it alone */
    assert_int_equal(table.fake_add(2, 3), 5);
    assert_int_equal(table.fake_mode(), 1); /* the version asked for, not the default */
    assert_int_equal(table.fake_new(), 3);
    assert_non_null(realpath(FAKE_FOLDER "/" SONAME, expected));
    assert_string_equal(gpusys_dl_path(dl), expected);
    assert_false(gpusys_dl_reused(dl));
    assert_int_equal(gpusys_dl_missing(dl, "fake_new", &error), 0);
    gpusys_dl_close(dl);
    assert_null(dlopen(SONAME, RTLD_NOW | RTLD_NOLOAD)); /* it was allowed to go */
}

static void an_absent_version_falls_back_to_the_default(void **state)
{
    (void)state;
    static const char *const names[] = {SONAME, NULL};
    struct gpusys_dl_symbol symbol = fake_symbols[1];
    symbol.version = "FAKE_9";
    struct gpusys_dl_library library = describe(names);
    library.symbols = &symbol;
    library.n_symbols = 1;
    struct fake_table table;
    struct gpusys_dl *dl;
    assert_int_equal(gpusys_dl_open(&dl, &library, &table, NULL), 0);
    assert_int_equal(table.fake_mode(), 2);
    gpusys_dl_close(dl);
}

static void a_loaded_copy_is_reused(void **state)
{
    (void)state;
    unsigned char *bytes;
    size_t size = read_fake(SONAME, &bytes);
    const char *path = write_copy("elsewhere.so", bytes, size);
    free(bytes);
    void *theirs = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(theirs);
    static const char *const names[] = {"libgpusysfakeold.so", SONAME, NULL};
    struct gpusys_dl_library library = describe(names);
    struct fake_table table;
    struct gpusys_dl *dl;
    assert_int_equal(gpusys_dl_open(&dl, &library, &table, NULL), 0);
    assert_true(gpusys_dl_reused(dl)); /* though the first name could have been loaded */
    assert_string_equal(gpusys_dl_path(dl), path);
    assert_ptr_equal((void *)table.fake_new, dlsym(theirs, "fake_new"));
    gpusys_dl_close(dl);
    dlclose(theirs);
}

static void the_variable_is_used_alone(void **state)
{
    (void)state;
    static const char *const names[] = {SONAME, NULL};
    struct gpusys_dl_library library = describe(names);
    struct fake_table table;
    struct gpusys_dl *dl = NULL;
    struct gpusys_error error;
    setenv(VARIABLE, FAKE_FOLDER "/libgpusysfakeold.so", 1);
    assert_int_equal(gpusys_dl_open(&dl, &library, &table, NULL), 0);
    assert_int_equal(table.fake_mode(), 0);
    gpusys_dl_close(dl);
    setenv(VARIABLE, "/nonexistent/libfake.so", 1);
    assert_int_equal(gpusys_dl_open(&dl, &library, &table, &error), -ENOENT);
    assert_string_equal(error.message, "Fake: not found: /nonexistent/libfake.so, which " VARIABLE " names");
    assert_string_equal(error.hint, "correct " VARIABLE ", or unset it");
    assert_null(strstr(error.detail, SONAME));
    setenv(VARIABLE, "", 1);
    assert_int_equal(gpusys_dl_open(&dl, &library, &table, &error), 0);
    assert_int_equal(table.fake_mode(), 1);
    gpusys_dl_close(dl);
    unsetenv(VARIABLE);
}

static void missing_optional_is_null_and_can_be_told(void **state)
{
    (void)state;
    static const char *const names[] = {"libgpusysfakeold.so", NULL};
    struct gpusys_dl_library library = describe(names);
    struct fake_table table;
    struct gpusys_dl *dl;
    struct gpusys_error error;
    char message[600];
    assert_int_equal(gpusys_dl_open(&dl, &library, &table, NULL), 0);
    assert_null(table.fake_new);
    assert_int_equal(table.fake_add(1, 1), 2);
    assert_int_equal(gpusys_dl_missing(dl, "fake_new", &error), -ENOSYS);
    snprintf(message, sizeof message, "Fake: %s has no fake_new", gpusys_dl_path(dl));
    assert_string_equal(error.message, message);
    assert_string_equal(error.detail, "since\tFake 2.0");
    assert_string_equal(error.cause, "this Fake is older than 2.0");
    assert_string_equal(error.hint, "upgrade it: install the package libfake2");
    assert_int_equal(error.domain, GPUSYS_DOMAIN_LOADER);
    assert_int_equal(gpusys_dl_missing(dl, "fake_unheard_of", &error), -ENOSYS);
    assert_string_equal(error.hint, "install the package libfake2");
    assert_int_equal(gpusys_dl_missing(dl, "fake_new", NULL), -ENOSYS);
    gpusys_dl_close(dl);
}

static void missing_required_fails_and_leaves_the_table(void **state)
{
    (void)state;
    static const char *const names[] = {"libgpusysfakeold.so", NULL};
    struct gpusys_dl_library library = describe(names);
    library.symbols = strict_symbols;
    library.n_symbols = 2;
    library.table_bytes = sizeof(struct strict_table);
    struct strict_table table = {.fake_add = (int (*)(int, int))(uintptr_t)1};
    struct gpusys_dl *dl = NULL;
    struct gpusys_error error;
    assert_int_equal(gpusys_dl_open(&dl, &library, &table, &error), -ENOSYS);
    assert_null(dl);
    assert_int_equal((uintptr_t)table.fake_add, 1);
    assert_null(table.fake_new);
    assert_non_null(strstr(error.message, "libgpusysfakeold.so has no fake_new"));
    assert_string_equal(error.detail, "since\tFake 2.0");
}

static void not_found_lists_every_name(void **state)
{
    (void)state;
    static const char *const names[] = {"libgpusysnone.so.1", "/nonexistent/libgpusysnone.so", NULL};
    struct gpusys_dl_library library = describe(names);
    struct fake_table table;
    struct gpusys_dl *dl = NULL;
    struct gpusys_error error;
    assert_int_equal(gpusys_dl_open(&dl, &library, &table, &error), -ENOENT);
    assert_string_equal(error.message, "Fake: not found");
    assert_string_equal(error.detail,
                        "libgpusysnone.so.1\tcannot open shared object file: No such file or directory\n"
                        "/nonexistent/libgpusysnone.so\tcannot open shared object file: No such file or "
                        "directory");
    assert_string_equal(error.cause, "");
    assert_string_equal(error.hint, "install the package libfake2");
    assert_null(dlerror()); /* nothing of ours is left behind */
}

/* To open a FIFO is to wait for somebody who writes to it; a folder cannot be loaded either. */
static void what_is_no_file(void **state)
{
    struct gpusys_error error;
    char path[sizeof folder + 16];
    (void)state;
    snprintf(path, sizeof path, "%s/fifo.so", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(try_open(path, &error), -ELIBBAD);
    assert_non_null(strstr(error.cause, "fifo.so is not a regular file"));
    assert_non_null(strstr(error.detail, "not a regular file"));
    unlink(path);
    assert_int_equal(try_open(folder, &error), -ELIBBAD);
}

static void damaged_and_foreign_files_are_not_absent(void **state)
{
    (void)state;
    struct gpusys_error error;
    unsigned char *bytes;
    size_t size = read_fake(SONAME, &bytes);
    static const char words[] =
        "this is no library, but a text long enough to have a whole header's worth of bytes";
    assert_int_equal(try_open(write_copy("text.so", words, sizeof words), &error), -ELIBBAD);
    assert_int_equal(try_open(write_copy("empty.so", "", 0), &error), -ELIBBAD);
    assert_int_equal(try_open(write_copy("short.so", bytes, 40), &error), -ELIBBAD);
    bytes[18] ^= 0x55; /* e_machine */
    const char *path = write_copy("foreign.so", bytes, size);
    free(bytes);
    assert_int_equal(try_open(path, &error), -ELIBBAD);
    assert_string_equal(error.message, "Fake: found, but it cannot be loaded");
    assert_non_null(strstr(error.cause, path));
    assert_non_null(strstr(error.cause, "damaged or made for another machine"));
}

static void a_missing_dependency_is_named(void **state)
{
    (void)state;
    struct gpusys_error error;
    unsigned char *bytes;
    size_t size = read_fake("libgpusysfakeneedy.so", &bytes);
    unsigned char *need = memmem(bytes, size, "libgpusysfakedep.so", 19);
    assert_non_null(need);
    memcpy(need, "libgpusysgonedep.so", 19);
    const char *path = write_copy("needy.so", bytes, size);
    free(bytes);
    assert_int_equal(try_open(path, &error), -ELIBACC);
    assert_string_equal(error.cause, "it needs libgpusysgonedep.so, which is not there");
    assert_int_equal(strncmp(error.detail, path, strlen(path)), 0);
}

static void a_later_candidate_makes_up_for_a_broken_one(void **state)
{
    (void)state;
    const char *const names[] = {write_copy("text.so", "no", 2), SONAME, NULL};
    struct gpusys_dl_library library = describe(names);
    struct fake_table table;
    struct gpusys_dl *dl;
    assert_int_equal(gpusys_dl_open(&dl, &library, &table, NULL), 0);
    gpusys_dl_close(dl);
    const char *const second[] = {"libgpusysnone.so", names[0], NULL};
    library.sonames = second;
    assert_int_equal(gpusys_dl_open(&dl, &library, &table, NULL), -ELIBBAD); /* not -ENOENT */
}

struct remarks {
    int warnings;
    char last[1024];
};

static void hear(void *context, enum gpusys_log_level level, const char *line)
{
    struct remarks *remarks = context;
    if (level != GPUSYS_LOG_WARN)
        return;
    remarks->warnings++;
    snprintf(remarks->last, sizeof remarks->last, "%s", line);
}

static void duplicates_are_listed(void **state)
{
    (void)state;
    unsigned char *bytes;
    size_t size = read_fake(SONAME, &bytes);
    const char *path = write_copy("libgpusysfake.so.2.7", bytes, size);
    write_copy("libgpusysfake.sonet", bytes, size);
    free(bytes);
    void *net = dlopen(in_folder("libgpusysfake.sonet"), RTLD_NOW | RTLD_LOCAL); /* another library's name */
    void *second = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_true(net && second);
    static const char *const names[] = {FAKE_FOLDER "/" SONAME, NULL};
    struct gpusys_dl_library library = describe(names);
    struct fake_table table;
    struct gpusys_dl *dl;
    struct remarks remarks = {0};
    char list[1200], expected[1200];
    gpusys_log_set(hear, &remarks, GPUSYS_LOG_DEBUG);
    assert_int_equal(gpusys_dl_open(&dl, &library, &table, NULL), 0);
    gpusys_log_set(NULL, NULL, GPUSYS_LOG_ERROR);
    assert_int_equal(gpusys_dl_copies(dl, list, sizeof list), 2);
    snprintf(expected, sizeof expected, "%s\n%s", path, gpusys_dl_path(dl));
    assert_string_equal(list, expected);
    assert_int_equal(remarks.warnings, 1);
    assert_non_null(strstr(remarks.last, "2 copies"));
    assert_int_equal(gpusys_dl_copies(dl, list, strlen(path) + 1), 2); /* whole lines only */
    assert_string_equal(list, path);
    assert_int_equal(gpusys_dl_copies(dl, NULL, 0), 2);
    gpusys_dl_close(dl);
    dlclose(second);
    dlclose(net);
}

static void an_incomplete_description_is_refused(void **state)
{
    (void)state;
    static const char *const none[] = {NULL};
    struct gpusys_dl_library library = describe(none);
    struct fake_table table;
    struct gpusys_dl *dl;
    assert_int_equal(gpusys_dl_open(&dl, &library, &table, NULL), -EINVAL);
    assert_int_equal(gpusys_dl_open(&dl, NULL, &table, NULL), -EINVAL);
    library.sonames = (const char *const[]){SONAME, NULL};
    library.size = 8;
    assert_int_equal(gpusys_dl_open(&dl, &library, &table, NULL), -EINVAL);
    struct {
        struct gpusys_dl_library known;
        char unknown[8];
    } grown = {.known = describe((const char *const[]){SONAME, NULL})};
    grown.known.size = sizeof grown;
    assert_int_equal(gpusys_dl_open(&dl, &grown.known, &table, NULL), 0);
    gpusys_dl_close(dl);
    grown.unknown[7] = 1;
    assert_int_equal(gpusys_dl_open(&dl, &grown.known, &table, NULL), -E2BIG);
    gpusys_dl_close(NULL);
}

/* Last: what it opens stays. */
static void without_the_flag_it_is_never_unloaded(void **state)
{
    (void)state;
    static const char *const names[] = {SONAME, NULL};
    struct gpusys_dl_library library = describe(names);
    library.flags = 0;
    struct fake_table table;
    struct gpusys_dl *dl;
    void *theirs = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(theirs);
    assert_int_equal(gpusys_dl_open(&dl, &library, &table, NULL), 0);
    gpusys_dl_close(dl);
    dlclose(theirs);
    assert_int_equal(table.fake_add(2, 2), 4);
    assert_non_null(dlopen(SONAME, RTLD_NOW | RTLD_NOLOAD));
}

static int make_folder(void **state)
{
    (void)state;
    unsetenv(VARIABLE);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"elsewhere.so",
                                        "text.so",
                                        "empty.so",
                                        "short.so",
                                        "foreign.so",
                                        "needy.so",
                                        "libgpusysfake.so.2.7",
                                        "libgpusysfake.sonet"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(in_folder(names[i]));
    return rmdir(folder);
}

int main(int argc, char **argv)
{
    (void)argc;
    const char *path = getenv("LD_LIBRARY_PATH");
    if (!path || strcmp(path, FAKE_FOLDER) != 0) { /* the dynamic loader reads it at the start only */
        setenv("LD_LIBRARY_PATH", FAKE_FOLDER, 1);
        execv("/proc/self/exe", argv);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_the_first_soname_that_loads),
        cmocka_unit_test(an_absent_version_falls_back_to_the_default),
        cmocka_unit_test(a_loaded_copy_is_reused),
        cmocka_unit_test(the_variable_is_used_alone),
        cmocka_unit_test(missing_optional_is_null_and_can_be_told),
        cmocka_unit_test(missing_required_fails_and_leaves_the_table),
        cmocka_unit_test(not_found_lists_every_name),
        cmocka_unit_test(what_is_no_file),
        cmocka_unit_test(damaged_and_foreign_files_are_not_absent),
        cmocka_unit_test(a_missing_dependency_is_named),
        cmocka_unit_test(a_later_candidate_makes_up_for_a_broken_one),
        cmocka_unit_test(duplicates_are_listed),
        cmocka_unit_test(an_incomplete_description_is_refused),
        cmocka_unit_test(without_the_flag_it_is_never_unloaded),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
