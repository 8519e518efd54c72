/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* gpusys/gpusys.h: every public header. */
#ifndef GPUSYS_GPUSYS_H
#define GPUSYS_GPUSYS_H

#include <gpusys/api.h>
#include <gpusys/comm.h>
#include <gpusys/cuda.h>
#include <gpusys/deadline.h>
#include <gpusys/dl.h>
#include <gpusys/env.h>
#include <gpusys/error.h>
#include <gpusys/field.h>
#include <gpusys/finding.h>
#include <gpusys/handshake.h>
#include <gpusys/hash.h>
#include <gpusys/job.h>
#include <gpusys/log.h>
#include <gpusys/memory.h>
#include <gpusys/nccl.h>
#include <gpusys/nvtx.h>
#include <gpusys/peer.h>
#include <gpusys/railset.h>
#include <gpusys/remote.h>
#include <gpusys/stream.h>
#include <gpusys/verbs.h>
#include <gpusys/wire.h>

#endif
