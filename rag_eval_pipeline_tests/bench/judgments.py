"""`python -m rag_eval_pipeline_tests.bench.judgments [--n 10000] [--latency 0.05] [--concurrency 8] [--rpm R]`: judgments of a local endpoint.

The endpoint is a process of its own that answers after the latency with bytes made before, so that it takes little of the machine; what
misbehaves is tested elsewhere. The bound is what concurrency (n × latency / concurrency) and rate
(n / requests a second) allow. Judgments are whole: prompt, schema, journal, reply on disk. Prints wall time over bound, CPU a
judgment of this process, and resident memory after a tenth and at the end.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from rag_eval_pipeline.judging.endpoint import EndpointConfig, complete
from rag_eval_pipeline.judging.llm import score_request
from rag_eval_pipeline.judging.replies import ReplyStore
from rag_eval_pipeline.judging.rubrics import ANSWER
from rag_eval_pipeline.judging.verifiers import Passage
from rag_eval_pipeline_tests.endpoint import instance

LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def requests(n):
    """Prompts of about 2,000 characters."""
    passages = [
        Passage(str(i), f"Passage {i}. " + "The office keeps the record of each case in its own folder. " * 5)
        for i in range(4)
    ]
    for number in range(n):
        yield score_request(str(number), f"What is the limit of case {number}?", f"It is {number} EUR.", passages)


def reply():
    """A whole response: a judgment that fits the schema, and what it took."""
    message = {"role": "assistant", "content": json.dumps(instance(ANSWER.schema()))}
    told = {
        "id": "r", "object": "chat.completion", "model": "m-0", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 500, "completion_tokens": 20, "total_tokens": 520},
    }  # fmt: skip
    content = json.dumps(told).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content) + content


class Plain(asyncio.Protocol):
    """A connection that gives the same response to each request, after the latency."""

    def __init__(self, latency, response):
        self.latency, self.response, self.waiting = latency, response, b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.waiting += data
        head, end, content = self.waiting.partition(b"\r\n\r\n")
        if end and len(content) >= int(LENGTH.search(head)[1]):
            self.waiting = b""
            asyncio.get_running_loop().call_later(self.latency, self.transport.write, self.response)


async def serve(latency):
    """Print the address and serve until ended."""
    response = reply()
    server = await asyncio.get_running_loop().create_server(
        lambda: Plain(latency, response), "127.0.0.1", 0, backlog=2048
    )
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    async with server:
        await server.serve_forever()


def measured(url, n, folder, concurrency, rpm):
    """Wall seconds, CPU seconds, resident MB after a tenth and at the end, statuses."""
    config = EndpointConfig(
        base_url=url, model="m", concurrency=concurrency, requests_per_minute=rpm, api_key_env=None,
        price_in=1.0, price_out=1.0, max_cost=1e9,
    )  # fmt: skip
    me, early, statuses = psutil.Process(), 0.0, {}
    began, cpu = time.perf_counter(), time.process_time()
    for done, reply in enumerate(complete(config, requests(n), ReplyStore(folder)), 1):
        statuses[reply.status] = statuses.get(reply.status, 0) + 1
        if done == n // 10:
            early = me.memory_info().rss / 2**20
    return time.perf_counter() - began, time.process_time() - cpu, early, me.memory_info().rss / 2**20, statuses


def main():
    """Print one row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--rpm", type=float)
    parser.add_argument("--serve", action="store_true", help="be the endpoint")
    asked = parser.parse_args()
    if asked.serve:
        asyncio.run(serve(asked.latency))
        return
    command = [
        sys.executable,
        "-m",
        "rag_eval_pipeline_tests.bench.judgments",
        "--serve",
        "--latency",
        str(asked.latency),
    ]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        try:
            url = server.stdout.readline().strip()
            bound = asked.n * asked.latency / asked.concurrency
            bound = max(bound, asked.n / asked.rpm * 60) if asked.rpm else bound
            load, endpoint = os.getloadavg()[0], psutil.Process(server.pid)
            before = sum(endpoint.cpu_times()[:2])
            wall, cpu, early, late, statuses = measured(url, asked.n, Path(folder), asked.concurrency, asked.rpm)
            theirs = sum(endpoint.cpu_times()[:2]) - before
            again, _, _, _, kept = measured(url, asked.n, Path(folder), asked.concurrency, asked.rpm)
        finally:
            server.terminate()
    print(
        f"{asked.n} judgments, {asked.latency * 1000:g} ms, concurrency {asked.concurrency}, rpm {asked.rpm or 'none'}: {wall:.1f} s, "
        f"bound {bound:.1f} s, {wall / bound:.2f} x; {1000 * cpu / asked.n:.2f} ms of CPU each, "
        f"{1000 * theirs / asked.n:.2f} ms of the endpoint; {early:.0f} MB after a tenth, {late:.0f} MB "
        f"at the end; {statuses}; again from the store {again:.1f} s, {kept}; load {load:.1f}"
    )


if __name__ == "__main__":
    main()
