/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The data frames of a tcp rail. */
#include "wire/message.h"

#include <errno.h>
#include <gpusys/remote.h>

void gs_request_put(unsigned char at[GS_REQUEST_BYTES], const struct gs_request *request)
{
    gs_put_u32(&at, request->op);
    gs_put_u32(&at, request->region);
    gs_put_u64(&at, request->offset);
    gs_put_u32(&at, request->length);
    gs_put_u32(&at, request->tag);
}

int gs_request_get(const unsigned char at[GS_REQUEST_BYTES], struct gs_request *ret_request)
{
    uint32_t op = gs_get_u32(&at);
    struct gs_request request = {.op = (uint8_t)op, .region = gs_get_u32(&at)};
    request.offset = gs_get_u64(&at);
    request.length = gs_get_u32(&at);
    request.tag = gs_get_u32(&at);
    if (op > GPUSYS_OP_WRITE || request.length > GS_SLICE_MAX)
        return -EBADMSG;
    *ret_request = request;
    return 0;
}

void gs_reply_put(unsigned char at[GS_REPLY_BYTES], const struct gs_reply *reply)
{
    gs_put_u32(&at, reply->status);
    gs_put_u32(&at, reply->length);
    gs_put_u32(&at, reply->tag);
}

int gs_reply_get(const unsigned char at[GS_REPLY_BYTES], struct gs_reply *ret_reply)
{
    uint32_t status = gs_get_u32(&at);
    struct gs_reply reply = {.status = (uint8_t)status, .length = gs_get_u32(&at)};
    reply.tag = gs_get_u32(&at);
    if (status > UINT8_MAX || reply.length > GS_SLICE_MAX)
        return -EBADMSG;
    *ret_reply = reply;
    return 0;
}

int gs_status_errno(uint8_t status)
{
    switch (status) {
    case GS_STATUS_OK: return 0;
    case GS_STATUS_RANGE: return -ERANGE;
    case GS_STATUS_ACCESS: return -EACCES;
    case GS_STATUS_REGION: return -ENOENT;
    case GS_STATUS_CHANGED: return -ESTALE;
    default: return -EIO;
    }
}
