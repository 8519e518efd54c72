/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Steering the stand-in libnccl.so.2, which moves and computes between processes or threads of one host through shared
 * memory. Look the functions up with dlsym in the library that was loaded; all may be called from any thread.
 *
 * Environment variables, read when the library is loaded and at fake_nccl_reset. NAME is a function ("ncclAllReduce"), or
 * "*" for any; R: in front (a number and a colon) means rank R alone, which is the rank in the first
 * communicator (those of split, shrink and grow keep it; calls without a communicator have the rank of the process's last
 * ncclCommInitRank…, or FAKE_NCCL_RANK). @N means the Nth such call, @N+ that and all later ones; without it every call.
 * Each rule counts the calls that it matches by itself, in this process. Lists are separated by commas.
 *
 *   FAKE_NCCL_FAIL         [R:]NAME=CODE[@N[+]]   the call returns CODE and does nothing
 *                          (1 by ncclCommInitRankConfig or …Scalable, which is what they return when CUDA fails, since 2.23.4
 *                          leaves the thread one deeper in groups, as the real ones do)
 *   FAKE_NCCL_HANG         [R:]NAME[@N[+]]        the call never returns
 *   FAKE_NCCL_SPIN         [R:]NAME[@N[+]]        the call returns when this process calls ncclCommAbort, with 2
 *   FAKE_NCCL_STALL        [R:]NAME[@N[+]]        the call returns 0, its operation never starts (until an abort); also as
 *                          rank=R,op=NAME[@N[+]], several of them separated by semicolons
 *   FAKE_NCCL_STALL_INIT   R or "*", [@N[+]]      an init, split, shrink or grow by rank R never comes to meet the others
 *   FAKE_NCCL_ASYNC_ERROR  [R:]CODE@N             from the Nth operation of a communicator on (0: from its start) that
 *                          is its asynchronous error, which all that is submitted later returns
 *   FAKE_NCCL_IN_PROGRESS  [R:]NAME=POLLS[@N[+]]  on a non-blocking communicator the call (an operation, or
 *                          ncclGroupEnd) does its work and returns ncclInProgress, and so say POLLS polls for asynchronous errors
 *   FAKE_NCCL_NO_CUDA=1    init and ncclMemAlloc fail as they do without a driver
 *   FAKE_NCCL_ZERO=1       operations return 0 at once and do nothing: to measure what a call costs
 *   FAKE_NCCL_VERSION=CODE what ncclGetVersion says, and how configs are read and types known. Else the library's own:
 *                          libnccl.so.2 23203, libnccl_210.so 21003, _213 21304, _214 21403, _218 21803, _219 21903,
 *                          _227 22703, _2283 22803, _230 23007. Those export what that version does.
 *   FAKE_NCCL_RANK=R       see above
 *   GPUSYS_LIBCUDA=FILE    the libcuda to be used where none is loaded. Streams are its; without one operations
 *                          run in the call itself (at the end of the group)
 *
 * Where it differs from the real library or what that leaves open:
 *   - A rank that comes twice, or with another number of ranks, gets ncclInvalidUsage; the others wait on.
 *   - Ranks that disagree in function, count, type, operator or root wait for ever. A send ends when it was received
 *     in full, whatever its size; one that meets a receive of another type or size waits for ever.
 *   - Collectives of 0 elements are nothing, on any rank.
 *   - Reductions go in rank order: integers wrap, an average is cut towards zero; half and smaller floats are summed as
 *     float32 and rounded once, to nearest even, and the 8-bit ones saturate.
 *   - An operation on a communicator that is still in progress returns ncclInvalidArgument, as the real library has it.
 *   - ncclCommFinalize and ncclCommDestroy wait for the operations of their own rank, not for other ranks.
 *   - The shared memory, /dev/shm/gpusys-nccl-*, loses its name once all ranks are there, or when the last of
 *     those that gave up leaves; what killed ranks left goes at the next ncclGetUniqueId of anybody. Bytes 64 to 79 of
 *     the unique id, in hexadecimal, are the rest of the name.
 */
#ifndef FAKE_NCCL_CONTROL_H
#define FAKE_NCCL_CONTROL_H

#include "fake/nccl_api.h"

/* Read the environment again; counts start anew. Not while calls are under way. */
NCCL_API void fake_nccl_reset(void);

/* Calls of a function in this process since the start or the reset, failing ones too; operations are not counted
 * under FAKE_NCCL_ZERO. -1: no such function. */
NCCL_API int64_t fake_nccl_calls(const char *name);

/* The config as it was read for this communicator: what the emulated library does not know, or the caller's version
 * does not have, is unset; what is defaulted is filled in. */
NCCL_API void fake_nccl_parsed_config(const struct ncclComm *comm, struct fake_nccl_config *ret_config);

/* How deep this thread is in groups. */
NCCL_API int fake_nccl_group_depth(void);

/* Communicators of this process that were neither destroyed nor aborted; operations that were submitted and are not
 * through. */
NCCL_API int fake_nccl_live_comms(void);
NCCL_API int fake_nccl_live_operations(void);

#endif
