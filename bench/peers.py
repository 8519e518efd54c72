# SPDX-License-Identifier: MIT OR Apache-2.0
"""What we are compared with. Every server listens on loopback only."""
import json
import os
import shutil
import socket

from processes import LOOPBACK, Failed, Server, free_port, on_one_core, run

REDIS_KEYS = 65536


class Iperf3:
    """One stream, 1-MiB writes, memory to memory."""
    name = "iperf3 -C reno -l 1M"

    def __init__(self, folder):
        port = free_port()
        self.server = Server(["iperf3", "-s", "-B", LOOPBACK, "-p", str(port)], port, f"{folder}/iperf3.log")

    def bytes_per_second(self, size):
        words = ["iperf3", "-c", LOOPBACK, "-p", str(self.server.port), "-C", "reno", "-l", "1M", "-n", str(size),
                 "-J"]
        return json.loads(run(words))["end"]["sum_received"]["bits_per_second"] / 8

    def stop(self):
        self.server.stop()


NGINX_CONF = """\
daemon off;
user root;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    client_body_temp_path {folder}/nginx-body;
    proxy_temp_path {folder}/nginx-proxy;
    fastcgi_temp_path {folder}/nginx-fastcgi;
    uwsgi_temp_path {folder}/nginx-uwsgi;
    scgi_temp_path {folder}/nginx-scgi;
    server {{ listen {address}:{port}; root {root}; }}
}}
"""


class Nginx:
    """nginx with sendfile, and curl."""

    def __init__(self, folder, root):
        port = free_port()
        conf = f"{folder}/nginx.conf"
        with open(conf, "w", encoding="utf-8") as file:
            file.write(NGINX_CONF.format(folder=folder, address=LOOPBACK, port=port, root=root))
        binary = shutil.which("nginx") or "/usr/sbin/nginx"
        self.server = Server([binary, "-c", conf, "-e", f"{folder}/nginx.log"], port, f"{folder}/nginx.out")
        self.url = f"http://{LOOPBACK}:{port}/"

    def curl(self, name, output):
        """The words of the command."""
        return ["curl", "-sf", "--noproxy", "*", "-o", output, self.url + name]

    def bytes_per_second(self, name, output):
        """From the request to the last byte: neither start-up nor connecting counts."""
        words = self.curl(name, output)
        size, total, before = run(
            words[:1] + ["-w", "%{size_download} %{time_total} %{time_pretransfer}"] + words[1:]).split()
        return float(size) / (float(total) - float(before))

    def stop(self):
        self.server.stop()


class Redis:
    """redis-server and redis-benchmark: one connection, GET of 4-KiB values at random keys. Placed by the scheduler, and
    on one core: the faster of the two counts."""

    def __init__(self, folder):
        self.servers = []
        for place in (list, on_one_core):
            port = free_port()
            words = ["redis-server", "--port", str(port), "--bind", LOOPBACK, "--save", "", "--appendonly", "no",
                     "--dir", folder]
            self.servers.append((place, Server(place(words), port, f"{folder}/redis-{port}.log")))
            self._fill(port)

    @staticmethod
    def _fill(port):
        value = os.urandom(4096)
        with socket.create_connection((LOOPBACK, port)) as connection:
            answers = connection.makefile("rb")
            for first in range(0, REDIS_KEYS, 256):
                connection.sendall(b"".join(b"*3\r\n$3\r\nSET\r\n$16\r\nkey:%012d\r\n$4096\r\n%b\r\n" % (key, value)
                                            for key in range(first, first + 256)))
                for _ in range(256):
                    if answers.readline() != b"+OK\r\n":
                        raise Failed("redis-server does not take a key")

    def reads_per_second(self, depth, count):
        return max(self._measure(place, server.port, depth, count) for place, server in self.servers)

    @staticmethod
    def _measure(place, port, depth, count):
        out = run(place(["redis-benchmark", "-h", LOOPBACK, "-p", str(port), "-t", "get", "-c", "1", "-P", str(depth),
                         "-n", str(count), "-r", str(REDIS_KEYS), "--csv"]))
        for line in out.splitlines():
            words = line.replace('"', "").split(",")
            if words[0] == "GET":
                return float(words[1])
        raise Failed("redis-benchmark printed no GET")

    def stop(self):
        for _, server in self.servers:
            server.stop()


class Netperf:
    """TCP_RR: one request in flight, answers of 4 KiB. Placed by the scheduler, and on one core: the faster counts."""
    name = "netperf TCP_RR"

    def __init__(self, folder, binaries):
        self.netperf = os.path.join(binaries, "netperf")
        self.servers = []
        for place in (list, on_one_core):
            port = free_port()
            words = [os.path.join(binaries, "netserver"), "-D", "-L", LOOPBACK, "-p", str(port)]
            self.servers.append((place, Server(place(words), port, f"{folder}/netserver-{port}.log")))

    def transactions_per_second(self):
        return max(self._measure(place, server.port) for place, server in self.servers)

    def _measure(self, place, port):
        out = run(place([self.netperf, "-H", LOOPBACK, "-p", str(port), "-t", "TCP_RR", "-l", "1", "-P", "0", "-v", "0",
                         "--", "-r", "32,4096"]))
        return float(out.split()[0])

    def stop(self):
        for _, server in self.servers:
            server.stop()


class Ucx:
    """ucx_perftest -t ucp_get over shared memory: the same bytes into the same buffer, again and again."""
    name = "ucx_perftest -t ucp_get, posix"

    def __init__(self, folder):
        self.folder = folder

    def seconds(self, size, count):
        """For one get."""
        port = free_port()
        env = {"UCX_TLS": "posix,cma,tcp", "UCX_LOG_LEVEL": "error"}
        server = Server(["ucx_perftest", "-p", str(port)], port, f"{self.folder}/ucx.log", env)
        try:
            out = run(["ucx_perftest", LOOPBACK, "-p", str(port), "-t", "ucp_get", "-s", str(size), "-n", str(count),
                       "-f"], env={**os.environ, **env})
        finally:
            server.stop()
        return float(out.splitlines()[-1].split()[3]) / 1e6  # iterations, median, average, overall

    def stop(self):
        pass
