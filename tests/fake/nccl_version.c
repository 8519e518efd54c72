/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The stand-in libnccl: the version that this library has when nobody says another; compiled once for each of them. */
#include "fake/nccl.h"

const int fake_default_version = FAKE_NCCL_DEFAULT_VERSION;
