# SPDX-License-Identifier: MIT OR Apache-2.0
"""nccl.h of every version that is published as a wheel, read out of the wheels without downloading them.

A wheel is a zip file of some hundred megabytes: its directory and the one header are read by ranges. Which index they
come from is pip's business: its configuration is asked. Headers are kept in a cache, under names with their size.
"""
import concurrent.futures
import html.parser
import io
import json
import os
import pathlib
import re
import ssl
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
import zipfile

PACKAGES = ("nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
TIMEOUT_S = 15
CACHED = re.compile(r"nccl-(?P<version>[\w.]+)-(?P<cuda>cu\d+)-(?P<size>\d+)\.h")


def cache_folder(name):
    """A folder to keep things in from run to run, made where there is none."""
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(base) / "gpusys-tests" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def pip_setting(name):
    """A setting as pip sees it: from its environment first, then from its files. None: it is not set."""
    value = os.environ.get("PIP_" + name.upper().replace("-", "_"))
    if value:
        return value
    for section in ("install", "global"):
        asked = subprocess.run([sys.executable, "-m", "pip", "config", "get", f"{section}.{name}"], text=True,
                               stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
        if asked.returncode == 0 and asked.stdout.strip():
            return asked.stdout.strip()
    return None


def index_url():
    url = pip_setting("index-url")
    if not url:
        from pip._internal.models.index import PyPI  # pip's own default
        url = PyPI.simple_url
    return url.rstrip("/") + "/"


class Web:
    """Requests the way pip makes them."""

    def __init__(self):
        self.index = index_url()
        self.tls = ssl.create_default_context(cafile=pip_setting("cert"))

    def open(self, url, headers):
        request = urllib.request.Request(url, headers=headers)
        return urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self.tls)

    def files(self, package):
        """(file name, URL) of every file of a package."""
        url = self.index + package + "/"
        accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
        with self.open(url, {"Accept": accept}) as answer:
            kind, body = answer.headers.get_content_type(), answer.read().decode()
        if kind.endswith("json"):
            found = [(one["filename"], one["url"]) for one in json.loads(body)["files"]]
        else:
            found = Links(body).found
        return [(name, urllib.parse.urljoin(url, where)) for name, where in found]

    def ranged(self, url, first, last):
        with self.open(url, {"Range": f"bytes={first}-{last}"}) as answer:
            if answer.status != 206:
                raise OSError("the server does not serve ranges")
            return answer.read(), int(answer.headers["Content-Range"].split("/")[1])


class Links(html.parser.HTMLParser):
    """The links of an index that answers in HTML."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        where = dict(attributes).get("href")
        if tag == "a" and where:
            path = urllib.parse.urlsplit(where).path
            self.found.append((urllib.parse.unquote(path.rsplit("/", 1)[-1]), where))


class RangeFile(io.RawIOBase):
    """A file on a server, to be read and sought in as one on disk."""

    def __init__(self, web, url):
        self.web, self.url, self.at = web, url, 0
        self.size = web.ranged(url, 0, 0)[1]

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.at

    def seek(self, offset, whence=io.SEEK_SET):
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def readinto(self, buffer):
        if self.at >= self.size or not buffer:
            return 0
        body = self.web.ranged(self.url, self.at, min(self.size, self.at + len(buffer)) - 1)[0]
        buffer[:len(body)] = body
        self.at += len(body)
        return len(body)


def read_header(web, url):
    with zipfile.ZipFile(io.BufferedReader(RangeFile(web, url), 1 << 16)) as wheel:
        for name in wheel.namelist():
            if name.endswith("/nccl.h"):
                return wheel.read(name)  # which checks its sum
    return None


def one_wheel_a_version(files):
    """{version: URL}; the header is the same in the wheels of every machine."""
    wheels = {}
    for name, url in files:
        parts = name.split("-")
        if name.endswith(".whl") and len(parts) >= 5:
            wheels.setdefault(parts[1], url)
    return wheels


def cached(folder):
    """{(version, cuda): path} of what is whole."""
    found = {}
    for path in folder.iterdir():
        name = CACHED.fullmatch(path.name)
        if name and path.stat().st_size == int(name["size"]):
            found[name["version"], name["cuda"]] = path
    return found


def keep(folder, version, cuda, text):
    path = folder / f"nccl-{version}-{cuda}-{len(text)}.h"
    handle, draft = tempfile.mkstemp(dir=folder)
    with open(handle, "wb") as file:
        file.write(text)
    os.rename(draft, path)
    return path


def fetch(web, folder, version, cuda, url):
    text = read_header(web, url)
    if text:
        keep(folder, version, cuda, text)


def refresh(folder):
    """Bring what is published into the cache. Returns what went wrong, a line each."""
    wrong = []
    try:
        web = Web()
    except Exception as error:  # no pip, or one that answers in another way
        return [f"pip does not say where its index is: {error}"]
    have = cached(folder)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        jobs = {}
        for package in PACKAGES:
            try:
                wheels = one_wheel_a_version(web.files(package))
            except (OSError, ValueError, KeyError) as error:
                wrong.append(f"{package}: {error}")
                break  # the next would not be answered either
            cuda = package.rsplit("-", 1)[-1]
            for version, url in wheels.items():
                if (version, cuda) not in have:
                    jobs[pool.submit(fetch, web, folder, version, cuda, url)] = f"{package} {version}"
        for job, name in jobs.items():
            try:
                job.result()
            except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
                wrong.append(f"{name}: {error}")
    return wrong
