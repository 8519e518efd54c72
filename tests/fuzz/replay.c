/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Runs a fuzz target over the files of a folder, or over single files: what a build without libFuzzer does.
 */
#include "fuzz.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

static int n_files;

static void replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat about;
    REQUIRE(file && fstat(fileno(file), &about) == 0);
    size_t size = (size_t)about.st_size;
    uint8_t *data = malloc(size ? size : 1); /* exactly as long, so that a sanitizer sees a read too far */
    REQUIRE(data && fread(data, 1, size, file) == size);
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    n_files++;
}

static void replay(const char *path)
{
    DIR *folder = opendir(path);
    if (!folder) {
        replay_file(path);
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            replay_file(name);
    }
    closedir(folder);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        replay(argv[i]);
    printf("%d inputs replayed\n", n_files);
    return n_files ? 0 : 1; /* a corpus that is not there must not pass */
}
