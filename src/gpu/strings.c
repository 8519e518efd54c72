/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Constant strings of a library, read from the section .rodata of its file: most of a large one is code for GPUs. */
#include "gpu/preflight.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct text {
    void *map;
    size_t map_bytes;
    const char *at;
    size_t bytes;
};

static bool fits(uint64_t offset, uint64_t bytes, uint64_t all)
{
    return offset <= all && bytes <= all - offset;
}

/* The section of that name; the fields are copied out, for nothing in a file need be aligned. */
static int find_section(struct text *text, const char *wanted)
{
    const char *file = text->map;
    Elf64_Ehdr head;
    Elf64_Shdr names, section;
    if (text->map_bytes < sizeof head)
        return -ENOEXEC;
    memcpy(&head, file, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_shentsize != sizeof section || head.e_shstrndx >= head.e_shnum ||
        !fits(head.e_shoff, (uint64_t)head.e_shnum * sizeof section, text->map_bytes))
        return -ENOEXEC;
    memcpy(&names, file + head.e_shoff + head.e_shstrndx * sizeof names, sizeof names);
    size_t length = strlen(wanted) + 1;
    for (unsigned i = 0; i < head.e_shnum; i++) {
        memcpy(&section, file + head.e_shoff + i * sizeof section, sizeof section);
        if (!fits(names.sh_offset, (uint64_t)section.sh_name + length, text->map_bytes) ||
            memcmp(file + names.sh_offset + section.sh_name, wanted, length) != 0)
            continue;
        if (section.sh_type != SHT_PROGBITS || !fits(section.sh_offset, section.sh_size, text->map_bytes))
            return -ENOEXEC;
        text->at = file + section.sh_offset;
        text->bytes = section.sh_size;
        return 0;
    }
    return -ENOEXEC;
}

static int map_file(struct text *text, const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), code = fd < 0 ? -errno : 0;
    if (!code && fstat(fd, &status))
        code = -errno;
    if (!code && (!S_ISREG(status.st_mode) || status.st_size == 0))
        code = -ENOEXEC;
    if (!code) {
        text->map_bytes = (size_t)status.st_size;
        text->map = mmap(NULL, text->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        code = text->map == MAP_FAILED ? -errno : 0;
    }
    if (fd >= 0)
        close(fd);
    return code;
}

static int open_text(struct text *text, const char *path)
{
    int code = map_file(text, path);
    if (code)
        return code;
    code = find_section(text, ".rodata");
    if (code)
        munmap(text->map, text->map_bytes);
    return code;
}

static bool is_of_word(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* From `at` on, the first string that begins with these bytes; a linker may have made it the tail of another one. */
static const char *find(const struct text *text, const char *at, const char *start, size_t length)
{
    const char *end = text->at + text->bytes;
    while ((at = memmem(at, (size_t)(end - at), start, length))) {
        if (at == text->at || !is_of_word(at[-1]))
            return at;
        at++;
    }
    return NULL;
}

int gs_file_has_string(const char *path, const char *string)
{
    struct text text;
    int code = open_text(&text, path);
    if (code)
        return code;
    bool found = find(&text, text.at, string, strlen(string) + 1) != NULL;
    munmap(text.map, text.map_bytes);
    return found ? 0 : -ENOENT;
}

int gs_file_string(const char *path, const char *start, const char *with, char *rest, size_t size)
{
    struct text text;
    int code = open_text(&text, path);
    if (code)
        return code;
    const char *at = text.at, *end = text.at + text.bytes;
    for (code = -ENOENT; code && (at = find(&text, at, start, strlen(start)));) {
        at += strlen(start);
        snprintf(rest, size, "%.*s", (int)strnlen(at, (size_t)(end - at)), at);
        code = strstr(rest, with) ? 0 : -ENOENT;
    }
    munmap(text.map, text.map_bytes);
    return code;
}
