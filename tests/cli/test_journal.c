/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The journal of a pull: what counts as having arrived, after every kind of interruption. */
#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { HEADER_BYTES = 48, RECORD_BYTES = 16 };

static const uint64_t length = 5 * GPUSYS_CHUNK_BYTES + 1; /* six chunks */
static const int64_t mtime_ns = 1700000000123456789;
static const char name[] = "x.part.journal";

static char folder[64];
static int directory;

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/gpusys-test-journal-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    directory = open(folder, O_RDONLY | O_DIRECTORY);
    return directory < 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlinkat(directory, name, 0);
    unlinkat(directory, "other", 0);
    close(directory);
    return rmdir(folder);
}

static void open_it(struct journal *journal, bool fresh)
{
    assert_int_equal(journal_open(journal, directory, name, length, mtime_ns, fresh), 0);
}

static off_t size_of_file(void)
{
    struct stat info;
    assert_int_equal(fstatat(directory, name, &info, 0), 0);
    return info.st_size;
}

/* A journal with chunks 0, 4 and 5 on record. */
static void write_three(void)
{
    struct journal journal;
    open_it(&journal, false);
    assert_int_equal(journal.n_chunks, 6);
    assert_int_equal(journal.n_done, 0);
    assert_int_equal(journal_add(&journal, 5), 0);
    assert_int_equal(journal_add(&journal, 0), 0);
    assert_int_equal(journal_add(&journal, 4), 0);
    assert_int_equal(journal.n_done, 3);
    journal_close(&journal);
    assert_int_equal(size_of_file(), HEADER_BYTES + 3 * RECORD_BYTES);
}

static void expect(const struct journal *journal, const char *done)
{
    uint64_t n_done = 0;
    for (size_t i = 0; done[i]; i++) {
        assert_int_equal(journal->done[i], done[i] == '1');
        n_done += done[i] == '1';
    }
    assert_int_equal(journal->n_done, n_done);
}

static void reopened_it_remembers(void **state)
{
    (void)state;
    struct journal journal;
    write_three();
    open_it(&journal, false);
    expect(&journal, "100011");
    assert_int_equal(journal_add(&journal, 1), 0);
    journal_close(&journal);
    open_it(&journal, false);
    expect(&journal, "110011");
    journal_close(&journal);
}

static void another_file_starts_over(void **state)
{
    (void)state;
    static const struct {
        uint64_t length;
        int64_t mtime_ns;
        bool fresh;
    } others[] = {{length + 1, mtime_ns, false}, {length, mtime_ns + 1, false}, {length, mtime_ns, true}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct journal journal;
        write_three();
        assert_int_equal(
            journal_open(&journal, directory, name, others[i].length, others[i].mtime_ns, others[i].fresh),
            0);
        expect(&journal, "000000");
        journal_close(&journal);
        assert_int_equal(size_of_file(), HEADER_BYTES);
        assert_int_equal(unlinkat(directory, name, 0), 0);
    }
}

/* Cut off after every byte: what is whole counts, and the next record lands where it is found again. */
static void a_cut_loses_no_more_than_its_record(void **state)
{
    (void)state;
    for (off_t size = 0; size <= HEADER_BYTES + 3 * RECORD_BYTES; size++) {
        struct journal journal;
        write_three();
        int fd = openat(directory, name, O_WRONLY);
        assert_int_equal(ftruncate(fd, size), 0);
        close(fd);
        uint64_t whole = size < HEADER_BYTES ? 0 : (uint64_t)(size - HEADER_BYTES) / RECORD_BYTES;
        open_it(&journal, false);
        assert_int_equal(journal.n_done, whole);
        assert_int_equal(journal_add(&journal, 2), 0);
        journal_close(&journal);
        open_it(&journal, false);
        assert_int_equal(journal.n_done, whole + 1);
        assert_true(journal.done[2]);
        journal_close(&journal);
        assert_int_equal(unlinkat(directory, name, 0), 0);
    }
}

/* Any one byte that is wrong costs its record (in the header: all of them), and never adds a chunk. */
static void a_wrong_byte_is_seen(void **state)
{
    (void)state;
    for (off_t at = 0; at < HEADER_BYTES + 3 * RECORD_BYTES; at++) {
        struct journal journal;
        unsigned char byte;
        write_three();
        int fd = openat(directory, name, O_RDWR);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        open_it(&journal, false);
        assert_int_equal(journal.n_done, at < HEADER_BYTES ? 0 : 2);
        assert_false(journal.done[1] || journal.done[2] || journal.done[3]);
        journal_close(&journal);
        assert_int_equal(unlinkat(directory, name, 0), 0);
    }
}

static void forgotten_until_added_again(void **state)
{
    (void)state;
    struct journal journal;
    write_three();
    open_it(&journal, false);
    journal_forget(&journal, 4);
    journal_forget(&journal, 3);
    expect(&journal, "100001");
    assert_int_equal(journal_add(&journal, 4), 0);
    expect(&journal, "100011");
    journal_close(&journal);
}

static void what_is_no_file_of_ours_is_refused(void **state)
{
    (void)state;
    struct journal journal;
    assert_int_equal(symlinkat("elsewhere", directory, name), 0);
    assert_int_equal(journal_open(&journal, directory, name, length, mtime_ns, false), -ELOOP);
    assert_int_equal(unlinkat(directory, name, 0), 0);
    assert_int_equal(mkfifoat(directory, name, 0600), 0);
    assert_int_equal(journal_open(&journal, directory, name, length, mtime_ns, false), -EEXIST);
    assert_int_equal(unlinkat(directory, name, 0), 0);
    int fd = openat(directory, "other", O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(linkat(directory, "other", directory, name, 0), 0);
    assert_int_equal(journal_open(&journal, directory, name, length, mtime_ns, false), -EEXIST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reopened_it_remembers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_file_starts_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cut_loses_no_more_than_its_record, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_wrong_byte_is_seen, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forgotten_until_added_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_file_of_ours_is_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
