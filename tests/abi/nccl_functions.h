/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Every function of struct gpusys_nccl with what it takes, in words that whoever includes this has defined: once as
 * nccl.h's types, once as ours. FUNCTION(member, name in nccl.h, result, parameters).
 */
FUNCTION(get_version, ncclGetVersion, RESULT, (int *))
FUNCTION(get_unique_id, ncclGetUniqueId, RESULT, (ID *))
FUNCTION(get_error_string, ncclGetErrorString, const char *, (RESULT))
FUNCTION(comm_init_rank, ncclCommInitRank, RESULT, (COMM *, int, ID, int))
FUNCTION(comm_init_all, ncclCommInitAll, RESULT, (COMM *, int, const int *))
FUNCTION(comm_destroy, ncclCommDestroy, RESULT, (COMM))
FUNCTION(comm_abort, ncclCommAbort, RESULT, (COMM))
FUNCTION(comm_get_async_error, ncclCommGetAsyncError, RESULT, (COMM, RESULT *))
FUNCTION(comm_count, ncclCommCount, RESULT, (CONST_COMM, int *))
FUNCTION(comm_cu_device, ncclCommCuDevice, RESULT, (CONST_COMM, int *))
FUNCTION(comm_user_rank, ncclCommUserRank, RESULT, (CONST_COMM, int *))
FUNCTION(group_start, ncclGroupStart, RESULT, (void))
FUNCTION(group_end, ncclGroupEnd, RESULT, (void))
FUNCTION(all_reduce, ncclAllReduce, RESULT, (const void *, void *, size_t, TYPE, OP, COMM, STREAM))
FUNCTION(broadcast, ncclBroadcast, RESULT, (const void *, void *, size_t, TYPE, int, COMM, STREAM))
FUNCTION(reduce, ncclReduce, RESULT, (const void *, void *, size_t, TYPE, OP, int, COMM, STREAM))
FUNCTION(all_gather, ncclAllGather, RESULT, (const void *, void *, size_t, TYPE, COMM, STREAM))
FUNCTION(reduce_scatter, ncclReduceScatter, RESULT, (const void *, void *, size_t, TYPE, OP, COMM, STREAM))
FUNCTION(send, ncclSend, RESULT, (const void *, size_t, TYPE, int, COMM, STREAM))
FUNCTION(recv, ncclRecv, RESULT, (void *, size_t, TYPE, int, COMM, STREAM))
FUNCTION(red_op_create_pre_mul_sum, ncclRedOpCreatePreMulSum, RESULT, (OP *, void *, TYPE, RESIDENCE, COMM))
FUNCTION(red_op_destroy, ncclRedOpDestroy, RESULT, (OP, COMM))
FUNCTION(get_last_error, ncclGetLastError, const char *, (COMM))
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 0)
FUNCTION(comm_init_rank_config, ncclCommInitRankConfig, RESULT, (COMM *, int, ID, int, CONFIG *))
FUNCTION(comm_finalize, ncclCommFinalize, RESULT, (COMM))
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0)
FUNCTION(comm_split, ncclCommSplit, RESULT, (COMM, int, int, COMM *, CONFIG *))
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
FUNCTION(mem_alloc, ncclMemAlloc, RESULT, (void **, size_t))
FUNCTION(mem_free, ncclMemFree, RESULT, (void *))
FUNCTION(comm_register, ncclCommRegister, RESULT, (CONST_COMM, void *, size_t, void **))
FUNCTION(comm_deregister, ncclCommDeregister, RESULT, (CONST_COMM, void *))
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 22, 0)
FUNCTION(group_simulate_end, ncclGroupSimulateEnd, RESULT, (SIM_INFO *))
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
FUNCTION(comm_init_rank_scalable, ncclCommInitRankScalable, RESULT, (COMM *, int, int, int, ID *, CONFIG *))
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
FUNCTION(comm_shrink, ncclCommShrink, RESULT, (COMM, int *, int, COMM *, CONFIG *, int))
FUNCTION(comm_window_register, ncclCommWindowRegister, RESULT, (COMM, void *, size_t, WINDOW *, int))
FUNCTION(comm_window_deregister, ncclCommWindowDeregister, RESULT, (COMM, WINDOW))
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
FUNCTION(all_to_all, ncclAlltoAll, RESULT, (const void *, void *, size_t, TYPE, COMM, STREAM))
FUNCTION(gather, ncclGather, RESULT, (const void *, void *, size_t, TYPE, int, COMM, STREAM))
FUNCTION(scatter, ncclScatter, RESULT, (const void *, void *, size_t, TYPE, int, COMM, STREAM))
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
FUNCTION(comm_revoke, ncclCommRevoke, RESULT, (COMM, int))
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
FUNCTION(comm_get_unique_id, ncclCommGetUniqueId, RESULT, (COMM, ID *))
FUNCTION(comm_grow, ncclCommGrow, RESULT, (COMM, int, const ID *, int, COMM *, CONFIG *))
FUNCTION(win_get_user_ptr, ncclWinGetUserPtr, RESULT, (COMM, WINDOW, void **))
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 7)
FUNCTION(comm_suspend, ncclCommSuspend, RESULT, (COMM, int))
FUNCTION(comm_resume, ncclCommResume, RESULT, (COMM))
FUNCTION(comm_mem_stats, ncclCommMemStats, RESULT, (COMM, MEM_STAT, uint64_t *))
#endif
