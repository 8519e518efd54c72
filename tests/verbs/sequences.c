/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The rows: legal and illegal sequences of calls with what must come of them. sequences.h has the language. */
#include "sequences.h"

const struct sequence sequences[] = {
    /* ---- states ---- */
    {"the walk to RTS", "state a RESET; init a; state a INIT; rtr a; state a RTR; rts a; state a RTS", NULL},
    {"no step is skipped on the way",
     "rtr a = EINVAL; rts a = EINVAL; sqd a = EINVAL; init a; rts a = EINVAL; sqd a = EINVAL; state a INIT",
     NULL},
    {"no step back but to RESET",
     "init a; rtr a; init a = EINVAL; rts a; init a = EINVAL; rtr a = EINVAL; state a RTS; reset a; state a "
     "RESET",
     NULL},
    {"from ERR only RESET leads on",
     "init a; err a; state a ERR; init a = EINVAL; rtr a = EINVAL; rts a = EINVAL; err a; reset a; init a",
     NULL},
    {"from RESET none but INIT", "err a = EINVAL; sqd a = EINVAL; state a RESET; reset a; state a RESET",
     NULL},
    {"INIT needs each of its attributes",
     "init a without=PORT = EINVAL; init a without=PKEY_INDEX = EINVAL; init a without=ACCESS_FLAGS = EINVAL;"
     "state a RESET",
     NULL},
    {"RTR needs each of its attributes",
     "init a; rtr a without=AV = EINVAL; rtr a without=PATH_MTU = EINVAL; rtr a without=DEST_QPN = EINVAL;"
     "rtr a without=RQ_PSN = EINVAL; rtr a without=MAX_DEST_RD_ATOMIC = EINVAL;"
     "rtr a without=MIN_RNR_TIMER = EINVAL; state a INIT; rtr a",
     NULL},
    {"RTS needs each of its attributes",
     "init a; rtr a; rts a without=SQ_PSN = EINVAL; rts a without=MAX_QP_RD_ATOMIC = EINVAL;"
     "rts a without=RETRY_CNT = EINVAL; rts a without=RNR_RETRY = EINVAL; rts a without=TIMEOUT = EINVAL;"
     "state a RTR; rts a",
     NULL},
    {"attributes of another step are refused",
     "init a with=DEST_QPN = EINVAL; init a with=SQ_PSN = EINVAL; init a with=QKEY = EINVAL; init a;"
     "rtr a with=SQ_PSN = EINVAL; rtr a with=TIMEOUT = EINVAL; rtr a with=PORT = EINVAL; rtr a;"
     "rts a with=DEST_QPN = EINVAL; rts a with=PATH_MTU = EINVAL; rts a;"
     "reset a with=PORT = EINVAL; err a with=ACCESS_FLAGS = EINVAL; state a RTS",
     NULL},
    {"INIT again, with other rights",
     "init a access=0; init a access=7; state a INIT; init a only=PORT; init a only=AV = EINVAL", NULL},
    {"RTS again, with other rights and the state it is in",
     "up; rts a only=ACCESS_FLAGS access=1; rts a only=CUR_STATE cur=3; rts a only=CUR_STATE cur=2 = EINVAL;"
     "rts a only=SQ_PSN = EINVAL; state a RTS",
     NULL},
    {"INIT: ports", "init a port=0 = EINVAL; init a port=9 = EINVAL; state a RESET; init a port=1", NULL},
    {"INIT: P_Keys", "init a pkey=60000 = EINVAL rxe=0", "it takes any index of a P_Key"},
    {"RTR: MTUs", "init a; rtr a mtu=6 = EINVAL; rtr a mtu=4096", NULL},
    {"RTR: no MTU", "init a; rtr a mtu=0 = EINVAL rxe=0", "it takes the MTU 0"},
    {"RTR: addresses",
     "init a; rtr a global=0 = EINVAL; rtr a sgid=15 = ENODATA; rtr a zerogid=1 = EINVAL; rtr a avport=9 = "
     "EINVAL;"
     "state a INIT; rtr a",
     NULL},
    {"RTR: an address that nobody has", "init a; rtr a host=99 = ETIMEDOUT; state a INIT", NULL},
    {"RTR: addresses of two families", "init a; rtr a sgid=0 = EINVAL; state a INIT", NULL},
    {"RTR: address on no port", "init a; rtr a avport=0 = EINVAL; state a INIT", NULL},
    {"RTR: read depth", "init a; rtr a dest_rd=0", NULL},
    {"RTR: too much read depth", "init a; rtr a dest_rd=255 = EINVAL rxe=0",
     "it does not limit the depth of the responder"},
    {"RTR: a sequence number above 24 bits", "init a; rtr a rq_psn=0x1000000 = EINVAL rxe=0",
     "it cuts the number"},
    {"RTR: a queue pair number above 24 bits", "init a; rtr a qpn=0x1000000 = EINVAL rxe=0",
     "it cuts the number"},
    {"RTR: RNR timer", "init a; rtr a min_rnr=31", NULL},
    {"RTR: an RNR timer that is none", "init a; rtr a min_rnr=32 = EINVAL rxe=0", "it does not look"},
    {"RTS: numbers", "init a; rtr a; rts a rd=255 = EINVAL; rts a timeout=32 = EINVAL; state a RTR; rts a",
     NULL},
    {"RTS: more than seven retries", "init a; rtr a; rts a retry=8 = EINVAL rxe=0", "it does not look"},
    {"RTS: more than seven RNR retries", "init a; rtr a; rts a rnr=8 = EINVAL rxe=0", "it does not look"},
    {"RTS: a sequence number above 24 bits", "init a; rtr a; rts a sq_psn=0x1000000 = EINVAL rxe=0",
     "it cuts the number"},
    {"SQD and back",
     "up; sqd a; state a SQD; rts a only=CUR_STATE cur=4; state a RTS; read a here there; wc ca 1 success",
     NULL},

    /* ---- creating and destroying ---- */
    {"a domain goes after what is in it",
     "pd x; mr y x 4096 l; dealloc x = EBUSY; dereg y; dealloc x; dealloc pd = EBUSY", NULL},
    {"a queue goes after its queue pairs",
     "destroy ca = EBUSY; destroy a; destroy ca; destroy channel = EBUSY; destroy b; destroy cb; destroy "
     "channel",
     NULL},
    {"sizes of completion queues",
     "cq x 0 = EINVAL; cq x -1 = EINVAL; cq x 100000000 = EINVAL; cq x 1; cq y 32 vector=99 = EINVAL", NULL},
    {"sizes of queue pairs",
     "qp x ca sends=100000000 = EINVAL; qp x ca receives=100000000 = EINVAL; qp x ca pieces=1000 = EINVAL;"
     "qp x ca inline=100000000 = EINVAL; qp x ca",
     NULL},
    {"rights of regions",
     "mr x pd 4096 w = EINVAL; mr x pd 4096 wr = EINVAL; mr x pd 4096 lw; mr y pd 4096 -", NULL},
    {"memory that is not there", "mr x pd unmapped l = EFAULT; mr x pd unmapped r = EFAULT", NULL},
    {"memory that cannot be written",
     "mr x pd readonly l = EFAULT; mr x pd readonly lwr = EFAULT; mr x pd readonly r", NULL},
    {"an empty region", "mr x pd 0 l = EINVAL", NULL},

    /* ---- tables of the port ---- */
    {"GIDs", "gid 15 ENODATA = ENODATA; zerogid 15; gid 100000 = EINVAL; zerogid 100000 = EINVAL", NULL},
    {"P_Keys", "pkey 0; pkey 60000 = ENOENT; pkey -1 = ENOENT", NULL},
    {"ports", "port 1; port 0 = EINVAL; port 9 = EINVAL", NULL},

    /* ---- posting ---- */
    {"posting before RTS",
     "read a here there = EINVAL bad=0; init a; read a here there = EINVAL bad=0; rtr a; write a here there "
     "= EINVAL",
     "it does not say which request was bad"},
    {"receiving before INIT", "recv a here = EINVAL; init a; recv a here; err a; wc ca 1 flush", NULL},
    {"a read",
     "up; differ here there 65536; read a here there len=65536; wc ca 1 success; same here there 65536; none "
     "ca",
     NULL},
    {"a write", "up; write a here there len=65536; wc ca 1 success; same here there 65536; none cb", NULL},
    {"the other way, to memory without the right",
     "up; read a here there id=1; write b there here id=2; wc ca 1 success; wc cb 2 rem_access; state a ERR",
     NULL},
    {"one byte", "up; read a here there len=1; wc ca 1 success; same here there 1; differ here there 2",
     NULL},
    {"nothing at all, whatever the key",
     "up; read a here there len=0 key=1 lkey=1; wc ca 1 success; write a here there len=0 key=1; wc ca 1 "
     "success",
     NULL},
    {"several pieces",
     "up; write a here there len=10001 pieces=4; wc ca 1 success; same here there 10001; read a here there "
     "len=4097 pieces=3; wc ca 1 success",
     NULL},
    {"too many pieces",
     "up; write a here there pieces=33 = EINVAL; recv a here pieces=33 = EINVAL; read a here there; wc ca 1 "
     "success",
     NULL},
    {"inline",
     "up; write a here there len=64 flags=i lkey=1; wc ca 1 success; same here there 64; differ here there "
     "65",
     NULL},
    {"inline and too long",
     "up; write a here there len=4096 flags=i = EINVAL; read a here there; wc ca 1 success", NULL},
    {"inline reads are none", "up; read a here there len=8 flags=i = EINVAL rxe=0", "it ignores the flag"},
    {"unsignalled ones are silent",
     "up; read a here there flags=u x=5; none ca; read a here there id=9; wc ca 9 success; none ca", NULL},
    {"completions come in order",
     "up; write a here there x=8 id=10; wc ca 10 success; wc ca 11 success; wc ca 12 success;"
     "wc ca 13 success; wc ca 14 success; wc ca 15 success; wc ca 16 success; wc ca 17 success",
     NULL},
    {"as many as the queue holds",
     "up; read a here there x=16; successes ca 16; read a here there x=16; successes ca 16", NULL},
    {"more than the queue holds", "up; read a here there x=40 = ENOMEM", NULL},
    {"places come back when a later one is polled",
     "up; read a here there x=15 flags=u; read a here there id=9; wc ca 9 success; read a here there x=16; "
     "successes ca 16",
     NULL},
    {"unsignalled ones keep their places",
     "standard; up; read a here there x=16 flags=u; none ca; read a here there = ENOMEM", NULL},

    /* ---- what the other side refuses ---- */
    {"a wrong key", "up; read a here there key=1; wc ca 1 rem_access; state a ERR; state b ERR", NULL},
    {"a wrong key for a write", "up; write a here there key=1; wc ca 1 rem_access; differ here there 4096",
     NULL},
    {"a byte beyond the end", "up; read a here there off=61441; wc ca 1 rem_access", NULL},
    {"up to the end", "up; read a here there off=61440; wc ca 1 success", NULL},
    {"a byte before the start", "up; read a here there off=-1; wc ca 1 rem_access", NULL},
    {"a write to read-only memory", "up; write a here ro; wc ca 1 rem_access; differ here ro 1", NULL},
    {"a read of memory to be read", "up; read a here ro; wc ca 1 success; same here ro 4096", NULL},
    {"a region without rights for the peer", "up; mr x pd 65536 l; read a here x; wc ca 1 rem_access", NULL},
    {"a region that is gone",
     "up; mr x pd 65536 lwr; read a here x; wc ca 1 success; dereg x; read a here x; wc ca 1 rem_access",
     NULL},
    {"a region of another domain", "up; mr x pd2 65536 lwr; read a here x; wc ca 1 rem_access", NULL},
    {"a queue pair without rights", "up b:access=1; read a here there; wc ca 1 rem_inv; state b ERR", NULL},
    {"a queue pair without the right to write",
     "up b:access=5; read a here there; wc ca 1 success; write a here there; wc ca 1 rem_inv", NULL},
    {"no depth for reads at the other side", "up b:dest_rd=0 a:rd=1; read a here there; wc ca 1 rem_inv",
     NULL},
    {"no depth for reads at ours", "up a:rd=0; read a here there; none ca; err a; wc ca 1 flush", NULL},

    /* ---- what our own side refuses ---- */
    {"a wrong local key",
     "up; write a here there lkey=1; wc ca 1 loc_prot rxe=loc_qp_op; state a ERR; state b RTS",
     "a key that is none is an operation error to it"},
    {"a wrong local key for a read", "up; read a here there lkey=1; wc ca 1 loc_prot; state a ERR", NULL},
    {"beyond our region", "up; write a here there loff=61441; wc ca 1 loc_prot", NULL},
    {"a read into memory not to be written", "up; mr x pd 65536 -; read a x there; wc ca 1 loc_prot", NULL},
    {"a write from memory not to be written",
     "up; mr x pd 65536 -; write a x there; wc ca 1 success; same x there 4096", NULL},
    {"our region of another domain", "up; mr x pd2 65536 l; write a x there; wc ca 1 loc_prot rxe=loc_qp_op",
     "a key that is none is an operation error to it"},
    {"our region is gone", "up; mr x pd 65536 l; dereg x; write a x there; wc ca 1 loc_prot rxe=loc_qp_op",
     "a key that is none is an operation error to it"},

    /* ---- the end of a queue pair ---- */
    {"after an error all is flushed",
     "up; read a here there key=1 id=1; read a here there id=2 x=3 flags=u; wc ca 1 rem_access; flushes ca 3;"
     "read a here there id=7; wc ca 7 flush; write a here there id=8 flags=u; wc ca 8 flush; none ca",
     NULL},
    {"in ERR posts are accepted and flushed", "up; err a; read a here there x=3 flags=u; flushes ca 3", NULL},
    {"in ERR receives are accepted and flushed", "up; err a; recv a here; standard; wc ca 1 flush",
     "it keeps a receive that is posted in ERR"},
    {"what is outstanding is flushed, signalled or not",
     "init a; rtr a timeout=20; rts a timeout=20; write a here there x=5 flags=u; none ca; err a; flushes ca "
     "5; none ca",
     NULL},
    {"the other is not ready", "init a; rtr a; rts a; read a here there; wc ca 1 retry; state a ERR", NULL},
    {"the other is gone", "up; destroy b; read a here there x=2; wc ca 1 retry; wc ca 2 flush", NULL},
    {"the other is in ERR", "up; err b; write a here there; wc ca 1 retry", NULL},
    {"the other listens to someone else", "up b:qpn=0x77; read a here there; wc ca 1 retry", NULL},
    {"a wrong sequence number", "up a:sq_psn=0x2000; read a here there; wc ca 1 retry", NULL},
    {"again after RESET, with other numbers",
     "up; read a here there; wc ca 1 success; reset a; reset b; up sq_psn=0x777777 rq_psn=0x777777; read a "
     "here there len=9000; wc ca 1 success;"
     "write b there ro; wc cb 1 rem_access",
     NULL},
    {"RESET of one alone needs the numbers to go on",
     "up; read a here there len=2500; wc ca 1 success; reset a; init a; rtr a; rts a sq_psn=0x1237; write a "
     "here there; wc ca 1 success",
     NULL},
    {"RESET of one alone with the old number",
     "up; write a here there len=2500; wc ca 1 success; reset a; init a; rtr a; rts a sq_psn=0x1239; write a "
     "here there; wc ca 1 retry",
     NULL},
    {"numbers go round at 24 bits",
     "up a:sq_psn=0xffffff b:rq_psn=0xffffff; write a here there len=3000; wc ca 1 success; read a here "
     "there len=3000; wc ca 1 success",
     NULL},

    /* ---- packets ---- */
    {"smaller packets here",
     "up a:mtu=1024 b:mtu=4096; read a here there len=1024; wc ca 1 success; write a here there len=1024; wc "
     "ca 1 success;"
     "write a here there len=2048; wc ca 1 rem_inv",
     NULL},
    {"larger packets here, a write",
     "up a:mtu=4096 b:mtu=1024; write a here there len=1024; wc ca 1 success; write a here there len=1025; "
     "wc ca 1 rem_inv",
     NULL},
    {"larger packets here, a read of one packet of ours",
     "up a:mtu=4096 b:mtu=1024; read a here there len=1024; wc ca 1 success; read a here there len=4096; wc "
     "ca 1 retry",
     NULL},

    {"larger packets here, a read that hangs",
     "up a:mtu=4096 b:mtu=1024; read a here there len=1025; none ca; err a; wc ca 1 flush", NULL},
    {"larger packets here, the longest read that hangs",
     "up a:mtu=4096 b:mtu=1024; read a here there len=3072; none ca; err a; wc ca 1 flush", NULL},
    {"larger packets here, the more retries the longer",
     "up a:mtu=4096 b:mtu=1024 retry=4; read a here there len=4097; none ca; err a; wc ca 1 flush", NULL},

    {"the mend after larger packets",
     "up a:mtu=4096 b:mtu=1024; read a here there len=4097; wc ca 1 retry; reset a; init a; rtr a mtu=1024; "
     "rts a sq_psn=0x1239; read a here there len=4097; wc ca 1 success; same here there 4097",
     NULL},
    {"the mend with the old number",
     "up a:mtu=4096 b:mtu=1024; read a here there len=4097; wc ca 1 retry; reset a; init a; rtr a mtu=1024; "
     "rts a; standard; read a here there len=4097; wc ca 1 retry",
     "a number that was used is a repetition, which it answers"},

    {"smaller packets here, reads",
     "up a:mtu=1024 b:mtu=4096; read a here there len=16384; wc ca 1 success; read a here there len=16384 "
     "x=8; successes ca 8; same here there 16384",
     NULL},
    {"larger packets here, a read of more",
     "up a:mtu=4096 b:mtu=1024; read a here there len=16384; wc ca 1 retry", NULL},

    /* ---- messages ---- */
    {"a message",
     "up; recv b there id=5; send a here there; wc ca 1 success; wc cb 5 success; same here there 4096",
     NULL},
    {"messages take receives in order",
     "up; recv b there id=5 x=3; send a here there len=1 x=2; wc cb 5 success; wc cb 6 success; none cb; "
     "successes ca 2",
     NULL},
    {"a write that tells",
     "up; recv b there id=5; imm a here there; wc ca 1 success; wc cb 5 success; same here there 4096", NULL},
    {"no receive is posted", "up rnr=0; send a here there; wc ca 1 rnr; state a ERR; state b RTS", NULL},
    {"no receive is posted for a write that tells", "up rnr=0; imm a here there; wc ca 1 rnr", NULL},
    {"a receive that comes later is waited for",
     "up rnr=7; send a here there; none ca; recv b there id=5; wc cb 5 success; wc ca 1 success", NULL},
    {"a receive that is too short",
     "up; recv b there len=100 id=5; send a here there; wc ca 1 rem_inv rxe=rem_op; wc cb 5 loc_len "
     "rxe=loc_qp_op; state b ERR",
     "it finds the receive at fault, not the message"},
    {"a receive with a wrong key",
     "up; recv b there lkey=1 id=5; send a here there; wc ca 1 rem_op; wc cb 5 loc_prot rxe=loc_qp_op",
     "a key that is none is an operation error to it"},
    {"receives are flushed",
     "up; recv b there x=4 id=5; err b; wc cb 5 flush; wc cb 6 flush; wc cb 7 flush; wc cb 8 flush; none cb",
     NULL},
    {"more receives than fit", "init a; recv a here x=40 = ENOMEM", NULL},

    /* ---- completion channels ---- */
    {"an armed queue tells once",
     "up; arm ca; quiet; read a here there; event ca; wc ca 1 success; read a here there; wc ca 1 success; "
     "quiet; ack ca 1",
     NULL},
    {"a queue that is not armed is silent", "up; read a here there; wc ca 1 success; quiet", NULL},
    {"what came before arming is not told",
     "up; read a here there; wc ca 1 success; read a here there id=2; wc ca 2 success; arm ca; quiet; read a "
     "here there id=3; event ca; wc ca 3 success; ack ca 1",
     NULL},
    {"unsignalled ones are not told",
     "up; arm ca; read a here there flags=u x=3; quiet; read a here there; event ca; wc ca 1 success; ack ca "
     "1",
     NULL},
    {"failures are told", "up; arm ca; read a here there key=1; event ca; wc ca 1 rem_access; ack ca 1",
     NULL},
    {"failures count as solicited",
     "up; arm ca solicited; read a here there key=1; standard; event ca; wc ca 1 rem_access; ack ca 1",
     "they do not count as solicited"},
    {"only solicited ones are told",
     "up; recv b there x=2 id=5; arm cb solicited; send a here there; wc cb 5 success; quiet; send a here "
     "there flags=s; event cb; wc cb 6 success; ack cb 1; successes ca 2",
     NULL},
    {"a flush is told", "up; recv a here; arm ca; err a; event ca; wc ca 1 flush; ack ca 1", NULL},
    {"a queue goes with its event unread",
     "up; arm ca; read a here there; wc ca 1 success; destroy a; destroy ca; quiet", NULL},

    /* ---- completion queues ---- */
    {"a queue filled to the brim",
     "cq x 16; destroy a; qp a x sends=16; up; read a here there x=16; successes x 16; none x", NULL},
    {"one more than it holds",
     "standard; cq x 4; destroy a; destroy b; qp a x sends=16; qp b cb; up; read a here there x=5; async 0; "
     "fails x",
     NULL},
};

const size_t n_sequences = sizeof sequences / sizeof *sequences;
