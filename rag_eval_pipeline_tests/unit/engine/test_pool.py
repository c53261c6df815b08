import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest

from rag_eval_pipeline.engine import pool
from rag_eval_pipeline.engine.limits import EngineError, Failure, Limits
from rag_eval_pipeline.engine.pool import map_items
from rag_eval_pipeline_tests.unit.engine.jobs import behave, square

LIMITS = Limits(seconds=20, memory_mb=512)


def run(items, one=behave, config=None, limits=LIMITS, workers=1, **more):
    results = list(map_items(one, items, config, limits=limits, workers=workers, **more))
    assert sorted(index for index, _ in results) == list(range(len(results))), "one result for each item"
    return [result for _, result in sorted(results, key=lambda pair: pair[0])]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_results_are_the_same_whatever_the_number_of_workers(workers):
    found = run([{"x": x} for x in range(300)], one=square, workers=workers)
    assert [row["y"] for row in found] == [x * x for x in range(300)]


def test_no_items_start_no_worker():
    assert run(iter(())) == []


@pytest.mark.parametrize(
    ("do", "status", "says"),
    [
        ("raise", "error", "ValueError at jobs.py"),
        ("system_exit", "error", "SystemExit"),
        ("recurse", "error", "RecursionError"),
        ("recurse_without_bound", "out_of_memory", ""),
        ("exit", "crashed", "exit code 7"),
        ("segfault", "crashed", "SIGSEGV"),
        ("abort", "crashed", "SIGABRT"),
        ("allocate_10_gb", "out_of_memory", "memory_mb"),
        ("grow", "out_of_memory", "512 MiB"),
        ("child_grows", "out_of_memory", "512 MiB"),
        ("unpicklable", "error", ""),
    ],
)
def test_a_bad_item_is_one_row_and_the_others_go_on(do, status, says):
    items = [{"do": "fine", "x": x} for x in range(20)]
    items.insert(7, {"do": do})
    found = run(items)
    bad = found.pop(7)
    assert isinstance(bad, Failure)
    assert bad.status == status
    assert says in bad.error
    assert "secret" not in bad.error
    assert [row["x"] for row in found] == list(range(20))


@pytest.mark.parametrize("do", ["spin", "spin_in_c", "sleep"])
def test_a_hanging_item_is_killed_in_time(do):
    run([{"do": "fine"}])  # a worker is up
    started = time.monotonic()
    found = run([{"do": do, "seconds": 60}, {"do": "fine", "x": 1}], limits=Limits(seconds=1, memory_mb=512))
    assert found[0] == Failure("timeout", "took longer than 1 s: raise the limit `seconds`, or split the document")
    assert found[1]["x"] == 1
    assert time.monotonic() - started < 15


def test_the_limit_is_of_a_part_where_an_item_tells_of_its_parts():
    items = [{"do": "parts", "parts": 5, "seconds": 0.5, "x": 0}, {"do": "parts", "parts": 2, "seconds": 1.6}, {"do": "fine", "x": 2}]  # fmt: skip
    found = run(items, limits=Limits(seconds=1, memory_mb=512))
    assert found[0] == {"x": 0}
    assert found[1].status == "timeout"
    assert found[2]["x"] == 2
    assert run(items[:1], workers=0) == [{"x": 0}]


def test_an_item_of_endless_parts_is_killed_in_the_end():
    started = time.monotonic()
    (found,) = run([{"do": "parts", "parts": 10**6, "seconds": 0.05}], limits=Limits(seconds=0.2, memory_mb=512))
    assert found == Failure("timeout", "took longer than 4 s: raise the limit `seconds`, or split the document")
    assert time.monotonic() - started < 30


def test_many_bad_items_among_many_good_ones():
    kinds = ["segfault", "exit", "raise", "allocate_10_gb"]
    items = [{"do": kinds[x // 10] if x % 10 == 3 else "fine", "x": x} for x in range(40)]
    found = run(items, workers=2)
    assert sum(isinstance(row, Failure) for row in found) == 4
    assert all(isinstance(row, Failure) or row["x"] == x for x, row in enumerate(found))


def test_what_ran_before_does_not_decide_an_items_fate():
    items = [{"do": "hold", "mb": 150} for _ in range(6)]  # together beyond the limit, each far below
    assert all(row == {"held": 1} or row["held"] <= 4 for row in run(items))


def test_time_limits_are_those_of_one_item_when_items_are_sent_ahead():
    items = [{"do": "fine"} for _ in range(50)] + [{"do": "sleep", "seconds": 0.4, "x": 1} for _ in range(6)]
    found = run(items, limits=Limits(seconds=2, memory_mb=512))
    assert not any(isinstance(row, Failure) for row in found)


def test_a_slow_reader_does_not_make_items_time_out_nor_lets_slow_ones_pass():
    items = [{"do": "sleep", "seconds": 0.1}, {"do": "sleep", "seconds": 1.5}, {"do": "fine"}]
    found = []
    for index, result in map_items(behave, items, None, limits=Limits(seconds=1, memory_mb=512), workers=1):
        found.append((index, result))
        time.sleep(2)
    assert [isinstance(result, Failure) for _, result in sorted(found, key=lambda pair: pair[0])] == [
        False,
        True,
        False,
    ]


def test_items_are_taken_as_workers_become_free():
    taken = []

    def source():
        for x in range(2000):
            taken.append(x)
            yield {"do": "large", "size": 1000, "x": x, "ballast": b"x" * 20_000}

    for done, _ in enumerate(map_items(behave, source(), None, limits=LIMITS, workers=2), start=1):
        assert len(taken) - done <= 2 * pool.AHEAD + 2


def test_large_items_and_results_pass():
    found = run([{"do": "large", "size": 30_000_000, "ballast": b"x" * 30_000_000}] * 2)
    assert [len(row["data"]) for row in found] == [30_000_000] * 2


def test_an_item_that_cannot_be_sent_is_an_error_row_even_the_last():
    found = run([{"do": "fine"}, {"do": "fine", "x": lambda: None}])
    assert [isinstance(row, Failure) for row in found] == [False, True]


def test_on_done_counts_items():
    counts = []
    run([{"do": "fine"}, {"do": "raise"}, {"do": "fine"}], on_done=counts.append)
    assert counts == [1, 2, 3]


def test_workers_are_kept_for_the_next_call_and_prepare_again():
    first = run([{"x": 1}], one=square)[0]["pid"]
    assert run([{"x": 1}], one=square)[0]["pid"] == first
    assert run([{"do": "fine"}], config="a")[0]["prepared"] >= 1


def test_a_failing_prepare_is_an_error_of_the_run_and_says_why():
    with pytest.raises(EngineError, match="the model is missing"):
        run([{"do": "fine"}], config="unpreparable")


def test_a_function_that_no_worker_can_import_is_refused():
    with pytest.raises(EngineError, match="top level"):
        run([{"x": 1}], one=lambda item, config: item)


def test_a_fork_inside_an_item_gives_no_second_result():
    assert [row["x"] for row in run([{"do": "fork", "x": x} for x in range(3)])] == [0, 1, 2]


def test_workers_print_nothing(capfd):
    run([{"do": "print", "x": 1}])
    captured = capfd.readouterr()
    assert "secret" not in captured.out + captured.err


def test_a_reader_that_stops_early_leaves_no_busy_worker():
    before = {child.pid for child in psutil.Process().children()} - {worker.process.pid for worker in pool._IDLE}
    results = map_items(behave, [{"do": "fine"}, *[{"do": "sleep", "seconds": 60}] * 5], None, limits=LIMITS, workers=2)
    next(results)
    results.close()
    left = {child.pid for child in psutil.Process().children()} - {worker.process.pid for worker in pool._IDLE}
    assert left <= before


def test_threads_may_map_at_the_same_time():
    found = {}

    def work(name):
        found[name] = run([{"x": x} for x in range(50)], one=square)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [row["y"] for row in found[2]] == [x * x for x in range(50)]
    # Workers outlive the thread that started them.
    assert run([{"x": 3}], one=square)[0]["y"] == 9


SCRIPT = textwrap.dedent(
    """
    import sys
    from rag_eval_pipeline.engine.pool import map_items
    from rag_eval_pipeline.engine.limits import Limits
    from rag_eval_pipeline_tests.unit.engine.jobs import behave, square
    print("started")
    results = sorted(map_items(square, [{"x": x} for x in range(5)], None, limits=Limits(30, 512), workers=2))
    print([row["y"] for _, row in results])
    """
)


@pytest.mark.parametrize("how", ["-c", "file"])
def test_a_script_without_a_main_guard_works(tmp_path, how):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-c", SCRIPT] if how == "-c" else [sys.executable, str(tmp_path / "script.py")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=True)
    assert done.stdout.splitlines() == ["started", "[0, 1, 4, 9, 16]"]


@pytest.mark.parametrize("do", ["mark", "spin_in_c"])
def test_workers_end_when_their_parent_is_killed(tmp_path, do):
    script = SCRIPT.split("print")[0] + (
        f"path = {str(tmp_path / 'pids')!r}\n"
        f"items = [{{'do': 'mark', 'path': path}}, {{'do': {do!r}, 'path': path}}]\n"
        "list(map_items(behave, items, None, limits=Limits(300, 512), workers=2))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    parent = subprocess.Popen([sys.executable, "-c", script], env=environment)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "pids").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1)
        workers = psutil.Process(parent.pid).children(recursive=True)
        assert len(workers) == 2
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not [worker for worker in alive if worker.status() != psutil.STATUS_ZOMBIE]


def test_limits_are_positive():
    with pytest.raises(ValueError, match="positive"):
        Limits(seconds=0)
