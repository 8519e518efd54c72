/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The rails that a gpusys server at an address and this host would really use: they are set up, tried and closed. */
#ifndef GPUSYS_CLI_RAILS_PEER_H
#define GPUSYS_CLI_RAILS_PEER_H

#include <gpusys/remote.h>

enum { RAILS_PEER_MOST = 8 };

struct rails_peer {
    bool asked; /* a session was opened, and `rails` is what it has */
    uint32_t n_rails;
    struct gpusys_rail_info rails[RAILS_PEER_MOST];
    char why_not[512]; /* nothing was asked, or there are no rails */
};

/* Never fails: why there is nothing to see is part of what is to be seen. */
void rails_ask_peer(struct rails_peer *ret_peer, const char *address, int64_t timeout_ns);

#endif
