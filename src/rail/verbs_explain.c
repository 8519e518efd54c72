/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Failed completions in words. */
#include "rail/verbs.h"

#include <errno.h>
#include <string.h>

struct wc_word {
    const char *text; /* what happened, as a sentence goes on behind "the request failed: " */
    const char *cause, *hint;
    int code;
};

static const char from_kernel[] = "look into the kernel's log (dmesg) and for newer firmware";
static const char open_again[] = "close the queue pair and connect anew";

/* By enum ibv_wc_status. A flush is never a cause: something before it was. */
static const struct wc_word words[] = {
    [IBV_WC_SUCCESS] = {"success", NULL, NULL, 0},
    [IBV_WC_LOC_LEN_ERR] = {"local length error", "longer than the device sends in one message",
                            "split it at the port's longest message (gpusys rails)", -EMSGSIZE},
    [IBV_WC_LOC_QP_OP_ERR] = {"local queue pair error",
                              "the queue pair's own set-up forbids it, or its state", from_kernel, -EIO},
    [IBV_WC_LOC_EEC_OP_ERR] = {"local end-to-end context error",
                               "a code of reliable datagrams, which are not in use here", from_kernel, -EIO},
    [IBV_WC_LOC_PROT_ERR] =
        {"local protection error", "our buffer is not registered in this domain, or not wholly",
         "register it (gpusys_mr_open) in the rail's domain and keep it until the completion", -EFAULT},
    [IBV_WC_WR_FLUSH_ERR] = {"flushed", "a request before it had failed, or the queue pair was stopped",
                             "the first failure says why; close the queue pair and connect anew", -ECANCELED},
    [IBV_WC_MW_BIND_ERR] = {"memory window error", "the key is of a memory window, which are not in use here",
                            "register the buffer itself (gpusys_mr_open)", -EFAULT},
    [IBV_WC_BAD_RESP_ERR] = {"bad response", "the peer answered with an opcode that does not belong here",
                             "are both ends' queue pair and packet numbers those of one handshake?", -EIO},
    [IBV_WC_LOC_ACCESS_ERR] = {"local access error", "our buffer's registration does not allow writing",
                               "register it for landing (GPUSYS_MR_LANDING)", -EFAULT},
    [IBV_WC_REM_INV_REQ_ERR] =
        {"the peer refused the request as invalid",
         "the length does not fit the peer's MTU, or the peer answers no such operation",
         "both sides must use the smaller MTU: gpusys rails on both hosts", -EREMOTEIO},
    [IBV_WC_REM_ACCESS_ERR] =
        {"the peer refused the access",
         "a key that is not the region's, bytes outside of it, or a write to what is read-only",
         "fetch the peer's table again: the region may have gone", -EREMOTEIO},
    [IBV_WC_REM_OP_ERR] = {"the peer could not do it", "its memory or its device failed",
                           "look into the peer's log", -EREMOTEIO},
    [IBV_WC_RETRY_EXC_ERR] =
        {"the peer did not answer (retry count exceeded)",
         "the peer's process or port is gone, or something between drops the packets",
         "is the peer still there (its control connection)? gpusys rails on both hosts; does "
         "every switch pass frames of this MTU?",
         -ETIMEDOUT},
    [IBV_WC_RNR_RETRY_EXC_ERR] = {"the receiver was not ready (RNR retry count exceeded)",
                                  "the peer had no receive posted, or its pages were not there",
                                  "raise rnr_retry (7: for ever), or ask again later", -EAGAIN},
    [IBV_WC_LOC_RDD_VIOL_ERR] = {"local RDD violation",
                                 "a code of reliable datagrams, which are not in use here", from_kernel,
                                 -EIO},
    [IBV_WC_REM_INV_RD_REQ_ERR] = {"the peer refused the read as invalid",
                                   "more reads under way than the peer answers at once",
                                   "both sides must agree on the reads under way", -EREMOTEIO},
    [IBV_WC_REM_ABORT_ERR] = {"the peer aborted it", "the peer's queue pair was stopped meanwhile",
                              open_again, -EREMOTEIO},
    [IBV_WC_INV_EECN_ERR] = {"invalid end-to-end context",
                             "a code of reliable datagrams, which are not in use here", from_kernel, -EIO},
    [IBV_WC_INV_EEC_STATE_ERR] = {"invalid end-to-end context state",
                                  "a code of reliable datagrams, which are not in use here", from_kernel,
                                  -EIO},
    [IBV_WC_FATAL_ERR] = {"the device failed", "the device or its driver has stopped", from_kernel, -EIO},
    [IBV_WC_RESP_TIMEOUT_ERR] = {"the peer did not answer in time",
                                 "the peer's process or port is gone, or something between drops the packets",
                                 "is the peer still there (its control connection)?", -ETIMEDOUT},
    [IBV_WC_GENERAL_ERR] = {"an error that the device does not name",
                            "only the device's own code can tell; its maker knows what it means", from_kernel,
                            -EIO},
};

static const struct wc_word *word_of(uint32_t status)
{
    return &words[status < sizeof words / sizeof words[0] && words[status].text ? status
                                                                                : IBV_WC_GENERAL_ERR];
}

int gpusys_wc_status_errno(uint32_t status)
{
    return word_of(status)->code;
}

const char *gpusys_wc_status_text(uint32_t status)
{
    return word_of(status)->text;
}

int gpusys_qp_explain(const struct gpusys_qp *qp, const struct gpusys_qp_completion *completion,
                      struct gpusys_error *error)
{
    const struct wc_word *word = word_of(completion->foreign);
    const struct gpusys_port_info *info = &qp->info;
    if (completion->status == 0)
        return 0;
    gpusys_error_set(error, completion->status, "%s port %u: request %llu failed: %s", info->device,
                     info->port, (unsigned long long)completion->id, word->text);
    gpusys_error_set_foreign(error, GPUSYS_DOMAIN_VERBS, (int)completion->foreign);
    gs_qp_add_ends(qp, error);
    int health = gpusys_verbs_health(qp->verbs);
    gpusys_error_add_detail(error, "path", "MTU %u, %s; our port is %s", qp->mtu_bytes,
                            qp->uses_grh ? "by GID" : "by LID",
                            health == -ENETDOWN ? "down"
                            : health            ? "gone"
                                                : "up");
    if (completion->vendor)
        gpusys_error_add_detail(error, "device's code", "%#x", completion->vendor);
    if (word->cause)
        gpusys_error_set_cause(error, "%s", word->cause);
    if (word->hint)
        gpusys_error_set_hint(error, "%s", word->hint);
    return completion->status;
}
