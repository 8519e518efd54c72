/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys nccl: the NCCL that is found here, what it has and lacks, and whether this machine is fit for it. */
#include "command.h"
#include "doctor.h"
#include "nccl_library.h"
#include "output.h"

#include <gpusys/deadline.h>
#include <gpusys/nccl.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA = 1, MOST_LOOKS = 64 };
static const int64_t patience_ns = INT64_C(10000000000);

struct nccl_options {
    bool json;
};

#define OPTION(member) offsetof(struct nccl_options, member)

static const struct option rows[] = {
    {"json", 0, NULL, OPTION_FLAG, OPTION(json), "print a JSON document instead of text"},
};

struct look {
    const char *name, *title;
    struct child child;
    struct doctor_finding finding;
};

struct examination {
    json_t *library;
    struct look looks[MOST_LOOKS];
    size_t n_looks;
    size_t counts[DOCTOR_VERDICTS];
};

/* All at once, each in a process of its own: one that hangs costs the deadline, and the others nothing. */
static int examine(struct examination *examination, int64_t timeout_ns)
{
    int64_t deadline_ns = gpusys_deadline_after(timeout_ns < 0 ? patience_ns : timeout_ns);
    struct look *looks = examination->looks;
    struct child library;
    fflush(NULL);
    nccl_library_start(&library);
    while (examination->n_looks < MOST_LOOKS &&
           gpusys_nccl_look_name((uint32_t)examination->n_looks, &looks[examination->n_looks].name,
                                 &looks[examination->n_looks].title) == 0) {
        struct look *look = &looks[examination->n_looks++];
        doctor_child_start_look(&look->child, look->name);
    }
    examination->library = nccl_library_finish(&library, deadline_ns);
    for (size_t i = 0; i < examination->n_looks; i++) {
        doctor_child_finish(&looks[i].child, deadline_ns, &looks[i].finding);
        examination->counts[looks[i].finding.verdict]++;
    }
    if (!examination->library)
        report("out of memory");
    return examination->library ? 0 : -ENOMEM;
}

static void print_text(const struct examination *examination)
{
    const size_t *counts = examination->counts;
    nccl_library_print(examination->library);
    putchar('\n');
    for (size_t i = 0; i < examination->n_looks; i++)
        doctor_print(examination->looks[i].name, &examination->looks[i].finding);
    printf("\n%zu ok, %zu missing, %zu broken, %zu not needed\n", counts[DOCTOR_OK], counts[DOCTOR_MISSING],
           counts[DOCTOR_BROKEN], counts[DOCTOR_NOT_NEEDED]);
}

static int print_json(const struct examination *examination)
{
    json_t *document = json_document(SCHEMA), *checks = json_array(), *counts = json_object();
    for (size_t i = 0; i < DOCTOR_VERDICTS; i++)
        json_object_set_new(counts, doctor_verdict_names[i],
                            json_integer((json_int_t)examination->counts[i]));
    for (size_t i = 0; i < examination->n_looks; i++)
        json_array_append_new(checks, doctor_json(examination->looks[i].name, examination->looks[i].title,
                                                  &examination->looks[i].finding));
    json_object_update(document, examination->library);
    json_object_set_new(document, "counts", counts);
    json_object_set_new(document, "checks", checks);
    return json_print(document);
}

static const struct look *find(const struct examination *examination, const char *name)
{
    for (size_t i = 0; i < examination->n_looks; i++)
        if (strcmp(examination->looks[i].name, name) == 0)
            return &examination->looks[i];
    return NULL;
}

/* The driver or the library is not there: what is missing, and where it comes from. */
static bool is_absent(const struct examination *examination, const char *name, const char *what,
                      const char *source)
{
    const struct look *look = find(examination, name);
    if (!look || (look->finding.verdict != DOCTOR_MISSING && look->finding.verdict != DOCTOR_NOT_NEEDED))
        return false;
    report("nccl: there is no %s: %s", what, look->finding.evidence);
    report_hint(look->finding.fix[0] ? look->finding.fix : source);
    return true;
}

static enum exit_code judge(const struct examination *examination)
{
    bool has_library = json_is_object(json_object_get(examination->library, "library"));
    bool no_driver =
        is_absent(examination, "driver", "CUDA driver",
                  "install NVIDIA's driver on a host with a GPU; in a container: docker run --gpus all");
    bool no_library =
        !has_library && is_absent(examination, "library", "libnccl",
                                  "install the package libnccl2, or pip install nvidia-nccl-cu13");
    if (no_driver || no_library)
        return EXIT_NOT_HERE;
    for (size_t i = 0; i < examination->n_looks; i++)
        if (examination->looks[i].finding.verdict == DOCTOR_BROKEN) {
            report("nccl: %s is broken: %s", examination->looks[i].name,
                   examination->looks[i].finding.evidence);
            return EXIT_FAILED;
        }
    return EXIT_DONE;
}

static enum exit_code run(const struct call *call)
{
    const struct nccl_options *options = call->options;
    struct examination *examination = calloc(1, sizeof *examination);
    if (!examination) {
        report("out of memory");
        return EXIT_FAILED;
    }
    int failed = examine(examination, call->settings->timeout_ns);
    if (!failed && options->json)
        failed = print_json(examination);
    else if (!failed && !call->settings->quiet)
        print_text(examination);
    enum exit_code code = failed ? EXIT_FAILED : judge(examination);
    json_decref(examination->library);
    free(examination);
    return code;
}

extern const struct command command_nccl;

const struct command command_nccl = {
    .name = "nccl",
    .summary = "show the NCCL of this host, and whether the machine is fit for it",
    .description =
        "Shows the libnccl that programs get here: its file, its version, and every function that it has or "
        "lacks, with the version of NCCL that brought it. Then looks at what NCCL needs of the machine: the "
        "driver, GPUs seen twice, settings that it does not know, the network interface, RDMA devices, "
        "/dev/shm, limits, IOMMU and PCI access control, the fabric manager, what a container takes away. "
        "Where something is amiss it says what follows, and the exact fix.\n"
        "\n"
        "Nothing of the vendor's is loaded into this process, and it ends after 10 seconds or the given "
        "--timeout. Run as root it sees more: PCI access control is shown to nobody else.\n"
        "\n"
        "Exit code 77: there is no CUDA driver, or no libnccl. Exit code 1: something is broken; what is "
        "missing is shown, and is no failure.\n"
        "\n"
        "    gpusys nccl\n"
        "    NCCL_SOCKET_IFNAME=eth1 gpusys nccl --json",
    .run = run,
    .options = OPTION_TABLE(rows),
    .options_size = sizeof(struct nccl_options),
    .max_operands = 0,
};
