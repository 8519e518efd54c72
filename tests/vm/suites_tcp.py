# SPDX-License-Identifier: MIT OR Apache-2.0
"""gpusys serve on one host, gpusys pull on the other, over TCP."""
from vmlab import contains, equal, suite

MIB = 1 << 20
SERVED = "/tmp/tcp-served"


def checksums(host, folder):
    return host.ok(f"cd {folder} && find . -type f | sort | xargs md5sum")


@suite("two-hosts", limit=30, programs=["gpusys"])
def tcp_pull(lab):
    """A tree pulled over either rail is the tree that was served."""
    one, two = lab.hosts
    one.ok(f"mkdir -p {SERVED}/folder && head -c {17 * MIB + 123} /dev/urandom >{SERVED}/folder/large && "
           f"echo hello >{SERVED}/small && : >{SERVED}/empty")
    server = one.start(["gpusys", "serve", SERVED, "--listen", "0.0.0.0:7471", "--insecure"])
    contains(server.wait_for("\n"), "ready at ", "the server's first line")
    for rail in range(2):
        out = f"/tmp/tcp-pulled-{rail}"
        said = two.ok(["gpusys", "pull", f"{one.address(rail)}:7471", "-o", out, "--require", "tcp"],
                      timeout=20)
        contains(said, "over tcp, verified", "what pull says")
        equal(checksums(two, f"{out}/tcp-served"), checksums(one, SERVED), f"the tree pulled over rail {rail}")
        two.ok(["rm", "-r", out])
    equal(server.stop().status, 0, "the server's exit code")
    one.ok(["rm", "-r", SERVED])
