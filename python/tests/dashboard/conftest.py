"""What the tests of the dashboard share: the server on a directory, and a page in Chromium."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "python" / "tests" / "cli"), str(ROOT / "benchmarks")]  # made_experiments, dashboard_runs
SCREENSHOTS = ROOT / "build" / "screenshots"
COMMAND = Path(sys.executable).parent / "lockstep"


class Dashboard:
    """`lockstep dashboard` on a directory."""

    def __init__(self, directory: Path, *options: str) -> None:
        command = [str(COMMAND), "dashboard", str(directory), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.output = ""
        assert self.process.stdout
        for line in self.process.stdout:
            self.output += line
            if "Ctrl-C" in line:
                break
        found = re.search(r"(https?://\S+)/\?token=(\w+)", self.output)
        assert found, self.output
        self.origin, self.token = found.groups()
        self.url = f"{self.origin}/?token={self.token}"

    def get(self, what: str) -> Any:
        request = urllib.request.Request(f"{self.origin}/api/{what}", headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)


class Page:
    """A page in the browser."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        self.driver.get("about:blank")
        self.driver.get(url)
        self.until("document.querySelector('#page').dataset.ready !== undefined")

    def go(self, hash_: str) -> None:
        self.run("location.hash = arguments[0]", hash_)
        self.until("document.querySelector('#page').dataset.ready === arguments[0]", hash_)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def value(self, expression: str, *arguments: Any) -> Any:
        return self.run(f"return {expression}", *arguments)

    def until(self, expression: str, *arguments: Any, timeout: float = 60) -> Any:
        """Waits until it is true; returns its value."""
        end = time.monotonic() + timeout
        while not (found := self.value(expression, *arguments)):
            assert time.monotonic() < end, f"never true: {expression}\n{self.text()[:3000]}"
            time.sleep(0.05)
        return found

    def text(self, selector: str = "body") -> str:
        return self.value("document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def chart(self, metric: str) -> list[dict[str, Any]] | None:
        """What the chart of this metric draws: [{label, x, y}]."""
        find = "[...document.querySelectorAll('.chart')].find((chart) => chart.dataset.metric === arguments[0])"
        return self.value(f"{find}?.chartData ?? null", metric)

    def press(self, key: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(key).perform()

    def screenshot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        assert self.driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))

    def errors(self) -> list[str]:
        """What the browser complained about, such as a violation of the page's policy."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not chromedriver:
        pytest.fail("needs chromium and chromedriver (Debian: chromium chromium-driver)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    home = tmp_path_factory.mktemp("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={home}")
    options.accept_insecure_certs = True
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=Service(chromedriver))
    made.set_script_timeout(60)
    yield made
    made.quit()


@pytest.fixture
def page(driver: Any) -> Iterator[Page]:
    driver.set_window_size(1300, 1000)
    driver.get_log("browser")
    opened = Page(driver)
    yield opened
    assert opened.errors() == []
    driver.get("about:blank")


@pytest.fixture
def serve() -> Iterator[Any]:
    """Starts dashboards, which end with the test."""
    started: list[Dashboard] = []

    def start(directory: Path, *options: str) -> Dashboard:
        started.append(Dashboard(directory, *(options or ("--port", "0"))))
        return started[-1]

    yield start
    for each in started:
        assert each.stop() == 0
