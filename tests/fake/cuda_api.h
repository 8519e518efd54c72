/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the stand-in libcuda.so.1 exports of the driver's interface. A CUresult and the driver's other enums are `unsigned`,
 * as C has them; tests/abi compares with the driver's own header.
 */
#ifndef FAKE_CUDA_API_H
#define FAKE_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

struct CUctx_st;
struct CUevent_st;
struct CUgraph_st;
struct CUipcEventHandle_st;
struct CUipcMemHandle_st;
struct CUstream_st;
struct CUuuid_st;

unsigned cuInit(unsigned flags);
unsigned cuDriverGetVersion(int *version);
unsigned cuGetErrorName(unsigned result, const char **name);
unsigned cuGetErrorString(unsigned result, const char **text);
unsigned cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                             unsigned *status);

unsigned cuDeviceGetCount(int *count);
unsigned cuDeviceGet(int *device, int ordinal);
unsigned cuDeviceGetName(char *name, int size, int device);
unsigned cuDeviceGetUuid(struct CUuuid_st *uuid, int device);
unsigned cuDeviceGetUuid_v2(struct CUuuid_st *uuid, int device);
unsigned cuDeviceGetPCIBusId(char *text, int size, int device);
unsigned cuDeviceTotalMem_v2(size_t *bytes, int device);
unsigned cuDeviceGetAttribute(int *value, unsigned attribute, int device);
unsigned cuDeviceCanAccessPeer(int *can, int device, int peer);

unsigned cuDevicePrimaryCtxRetain(struct CUctx_st **context, int device);
unsigned cuDevicePrimaryCtxRelease(int device);
unsigned cuDevicePrimaryCtxRelease_v2(int device);
unsigned cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active);
unsigned cuCtxCreate_v2(struct CUctx_st **context, unsigned flags, int device);
unsigned cuCtxDestroy_v2(struct CUctx_st *context);
unsigned cuCtxPushCurrent_v2(struct CUctx_st *context);
unsigned cuCtxPopCurrent_v2(struct CUctx_st **context);
unsigned cuCtxSetCurrent(struct CUctx_st *context);
unsigned cuCtxGetCurrent(struct CUctx_st **context);
unsigned cuCtxGetDevice(int *device);
unsigned cuCtxSynchronize(void);
unsigned cuCtxEnablePeerAccess(struct CUctx_st *context, unsigned flags);
unsigned cuCtxGetStreamPriorityRange(int *least, int *greatest);

unsigned cuStreamCreate(struct CUstream_st **stream, unsigned flags);
unsigned cuStreamCreateWithPriority(struct CUstream_st **stream, unsigned flags, int priority);
unsigned cuStreamDestroy_v2(struct CUstream_st *stream);
unsigned cuStreamQuery(struct CUstream_st *stream);
unsigned cuStreamSynchronize(struct CUstream_st *stream);
unsigned cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags);
unsigned cuStreamGetCtx(struct CUstream_st *stream, struct CUctx_st **context);
unsigned cuStreamIsCapturing(struct CUstream_st *stream, unsigned *status);
unsigned cuStreamBeginCapture_v2(struct CUstream_st *stream, unsigned mode);
unsigned cuStreamEndCapture(struct CUstream_st *stream, struct CUgraph_st **graph);
unsigned cuLaunchHostFunc(struct CUstream_st *stream, void (*function)(void *), void *data);

unsigned cuEventCreate(struct CUevent_st **event, unsigned flags);
unsigned cuEventDestroy_v2(struct CUevent_st *event);
unsigned cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream);
unsigned cuEventQuery(struct CUevent_st *event);
unsigned cuEventSynchronize(struct CUevent_st *event);
unsigned cuEventElapsedTime(float *milliseconds, struct CUevent_st *start, struct CUevent_st *end);

unsigned cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
unsigned cuMemAlloc_v2(unsigned long long *address, size_t bytes);
unsigned cuMemAllocManaged(unsigned long long *address, size_t bytes, unsigned flags);
unsigned cuMemFree_v2(unsigned long long address);
unsigned cuMemAllocHost_v2(void **host, size_t bytes);
unsigned cuMemHostAlloc(void **host, size_t bytes, unsigned flags);
unsigned cuMemFreeHost(void *host);
unsigned cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags);
unsigned cuMemHostUnregister(void *host);
unsigned cuMemHostGetDevicePointer_v2(unsigned long long *address, void *host, unsigned flags);
unsigned cuMemGetAddressRange_v2(unsigned long long *start, size_t *bytes, unsigned long long address);
unsigned cuMemGetHandleForAddressRange(void *handle, unsigned long long address, size_t bytes, unsigned type,
                                       unsigned long long flags);
unsigned cuPointerGetAttribute(void *value, unsigned attribute, unsigned long long address);
unsigned cuPointerGetAttributes(unsigned count, unsigned *attributes, void **values,
                                unsigned long long address);
unsigned cuPointerSetAttribute(const void *value, unsigned attribute, unsigned long long address);

unsigned cuMemcpy(unsigned long long to, unsigned long long from, size_t bytes);
unsigned cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t bytes,
                       struct CUstream_st *stream);
unsigned cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes);
unsigned cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes,
                              struct CUstream_st *stream);
unsigned cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes);
unsigned cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, struct CUstream_st *stream);
unsigned cuMemcpyDtoD_v2(unsigned long long to, unsigned long long from, size_t bytes);
unsigned cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes,
                              struct CUstream_st *stream);
unsigned cuMemcpyPeer(unsigned long long to, struct CUctx_st *to_context, unsigned long long from,
                      struct CUctx_st *from_context, size_t bytes);
unsigned cuMemcpyPeerAsync(unsigned long long to, struct CUctx_st *to_context, unsigned long long from,
                           struct CUctx_st *from_context, size_t bytes, struct CUstream_st *stream);
unsigned cuMemsetD8_v2(unsigned long long to, unsigned char byte, size_t bytes);
unsigned cuMemsetD8Async(unsigned long long to, unsigned char byte, size_t bytes, struct CUstream_st *stream);

unsigned cuIpcGetMemHandle(struct CUipcMemHandle_st *handle, unsigned long long address);
unsigned cuIpcOpenMemHandle(unsigned long long *address, struct CUipcMemHandle_st handle, unsigned flags);
unsigned cuIpcOpenMemHandle_v2(unsigned long long *address, struct CUipcMemHandle_st handle, unsigned flags);
unsigned cuIpcCloseMemHandle(unsigned long long address);
unsigned cuIpcGetEventHandle(struct CUipcEventHandle_st *handle, struct CUevent_st *event);
unsigned cuIpcOpenEventHandle(struct CUevent_st **event, struct CUipcEventHandle_st handle);

#endif
