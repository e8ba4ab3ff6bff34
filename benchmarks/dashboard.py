"""The dashboard in Chromium: 1,000 runs of 10,000 reports, a page at rest, and the way of a report to the screen."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dashboard_runs import write_run
from measure import Row, cpu_seconds, median_row, scratch

RUNS = 1000
REPORTS = 10_000
DIFFERENT = 10  # files of reports; the others are hard links to them, so that the disk need not hold 7 GB
SETTLE_SECONDS = 15  # until the best values of the rows on the screen are read
REST_SECONDS = 20
LIVE_REPORTS = 40

TRAIN = """
import sys, time
from lockstep import DataParallelTrainer, RunConfig, ScalingConfig, session

def train_func():
    for step in range(int(sys.argv[2])):
        time.sleep(0.25)
        session.report({"sent": time.time()})

if __name__ == "__main__":
    DataParallelTrainer(train_func, scaling_config=ScalingConfig(num_workers=2),
                        run_config=RunConfig(storage_path=sys.argv[1], name="live", verbose=0)).fit()
"""
# Notes, at each frame, how long ago the newest report on the chart was made.
WATCH = """
window.delays = [];
let last = null;
const look = () => {
  const value = document.querySelector('[data-metric=sent]')?.chartData?.[0].y.at(-1) ?? null;
  if (value !== last) window.delays.push(Date.now() / 1000 - (last = value));
  requestAnimationFrame(look);
};
look();
"""


def measure() -> list[Row]:
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        print("  the dashboard is not measured: it needs chromium and chromedriver")
        return []
    with scratch() as storage:
        write_runs(storage)
        return [*opening(storage), *rest(storage), *delay(storage)]


def write_runs(storage: Path) -> None:
    for number in range(DIFFERENT):
        write_run(storage / f"run_{number}", REPORTS, number)
    for number in range(DIFFERENT, RUNS):
        write_run(storage / f"run_{number}", 2, number)
        record = json.loads((storage / f"run_{number}" / "run.json").read_text())
        (storage / f"run_{number}" / "run.json").write_text(json.dumps({**record, "training_iteration": REPORTS}))
        (storage / f"run_{number}" / "result.json").unlink()
        os.link(storage / f"run_{number % DIFFERENT}" / "result.json", storage / f"run_{number}" / "result.json")


@contextmanager
def server(storage: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [str(Path(sys.executable).parent / "lockstep"), "dashboard", str(storage), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    url = ""
    for line in process.stdout:
        url = url or "".join(re.findall(r"http\S+", line))
        if "Ctrl-C" in line:
            break
    try:
        yield process, url
    finally:
        process.terminate()
        process.wait()


@contextmanager
def browser() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.add_argument("--window-size=1400,1000")
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    try:
        driver.get("about:blank")
        yield driver
    finally:
        driver.quit()


def until(driver: Any, expression: str) -> float:
    """Waits in the page, frame by frame; returns the seconds since the page was opened."""
    script = f"""
        const done = arguments[arguments.length - 1];
        const look = () => ({expression}) ? done(performance.now() / 1000) : requestAnimationFrame(look);
        look();
    """
    driver.set_script_timeout(120)
    return float(driver.execute_async_script(script))


def opening(storage: Path) -> list[Row]:
    lists, charts = [], []
    for number in range(3):
        with server(storage) as (_, url), browser() as driver:
            driver.get(url)
            lists.append(until(driver, f"document.querySelector('#count')?.textContent === '{RUNS} runs'"))
            before = until(driver, "true")
            driver.execute_script(f"location.hash = '#/run/run_{number}'")
            chart = "document.querySelector('[data-metric=loss]')"
            drawn = f"{chart}?.querySelector('canvas') && {chart}.chartData[0].y.length === {REPORTS}"
            charts.append(until(driver, drawn) - before)
    return [
        median_row(f"dashboard, a new server: {RUNS} runs of {REPORTS} reports on the screen", lists, "s", 1.0),
        median_row(f"dashboard, a run of {REPORTS} reports: its charts drawn", charts, "s", 1.0),
    ]


def descendants(pid: int) -> list[int]:
    """The children of all threads, and theirs: the browser is not started by the main thread."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, children.read_text().split())
    return found


def rest(storage: Path) -> list[Row]:
    rows = []
    with server(storage) as (process, url), browser() as driver:
        for place, hash_ in (("the list", "#/"), ("a run", "#/run/run_1")):
            driver.get("about:blank")
            driver.get(url + hash_)
            until(driver, "document.querySelector('#page').dataset.ready !== undefined")
            time.sleep(SETTLE_SECONDS)
            groups = {"server": [process.pid], "whole browser": descendants(driver.service.process.pid)}
            before = {who: sum(map(cpu_seconds, pids)) for who, pids in groups.items()}
            time.sleep(REST_SECONDS)
            for who, pids in groups.items():
                used = 100 * (sum(map(cpu_seconds, pids)) - before[who]) / REST_SECONDS
                rows.append(Row(f"dashboard, {place} at rest: the {who}", used, "% of a core", 1.0))
    return rows


def delay(storage: Path) -> list[Row]:
    script = storage / "train.py"
    script.write_text(TRAIN)
    with server(storage) as (_, url), browser() as driver:
        driver.get(url)
        with subprocess.Popen([sys.executable, str(script), str(storage), str(LIVE_REPORTS)]):
            until(driver, "document.querySelector('#runs tr[data-id=live]')")
            driver.execute_script("location.hash = '#/run/live'")
            driver.execute_script(WATCH)
            until(driver, f"document.querySelector('[data-metric=sent]')?.chartData?.[0].y.length === {LIVE_REPORTS}")
        delays = [value for value in driver.execute_script("return window.delays") if value < 100][1:]
    return [
        median_row("dashboard, from session.report to the screen: median", delays, "s", 0.5),
        Row("dashboard, from session.report to the screen: longest", max(delays), "s", 0.5),
    ]
