"""The page on runs and experiments that were made before: lists, comparison, hostile names, keys, sizes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dashboard_runs import write_run
from made_experiments import make_experiment

ROOT = Path(__file__).resolve().parents[3]
HOSTILE = "<img src=x onerror=window.hacked=1>"


def change_record(run: Path, **changes: Any) -> None:
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, **changes}))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Ten runs of 50 reports; two of them failed, three are in a group."""
    for number in range(10):
        group = "group/" if number >= 7 else ""
        write_run(tmp_path / f"{group}run_{number}", 50, number)
    for number in (2, 5):
        change_record(tmp_path / f"run_{number}", state="failed", error="out of memory")
    return tmp_path


def shown(page: Any) -> list[str]:
    return page.value("[...document.querySelectorAll('#runs tr[data-id]')].map((row) => row.dataset.id)")


def test_search_filter_and_sort(runs: Path, serve: Callable[..., Any], page: Any) -> None:
    page.open(serve(runs).url)
    newest_first = ["group/run_9", "group/run_8", "group/run_7", *(f"run_{number}" for number in range(6, -1, -1))]
    assert shown(page) == newest_first
    page.press("/")
    page.press("memory")
    assert shown(page) == ["run_5", "run_2"]
    assert page.text("#count") == "2 of 10 runs"
    page.run(
        "const s = document.querySelector('#search'); s.value = 'group run_8'; s.dispatchEvent(new Event('input'))"
    )
    assert shown(page) == ["group/run_8"]
    page.run("const s = document.querySelector('#search'); s.value = ''; s.dispatchEvent(new Event('input'))")
    page.run("document.querySelector('thead th:nth-child(2) button').click()")
    assert shown(page) == sorted(newest_first, key=lambda name: name.split("/")[-1])
    # No checkpoint has a score, so the best value of the metric is shown.
    least = min(json.loads(line)["loss"] for line in (runs / "run_3" / "result.json").read_text().splitlines())
    best = page.until("document.querySelector('#runs tr[data-id=run_3] .best b')?.textContent")
    assert float(best) == pytest.approx(least, rel=1e-3)
    page.screenshot("list")


def test_compare(runs: Path, serve: Callable[..., Any], page: Any) -> None:
    page.open(serve(runs).url)
    page.run("document.activeElement.blur()")
    for key in "xjxjjxc":
        page.press(key)
    page.until("location.hash.startsWith('#/compare/')")
    page.until("document.querySelectorAll('.chart').length > 3")
    curves = page.chart("loss")
    assert [curve["label"] for curve in curves] == ["group/run_9", "group/run_8", "run_6"]
    for curve, run in zip(curves, ("group/run_9", "group/run_8", "run_6"), strict=True):
        reported = [json.loads(line)["loss"] for line in (runs / run / "result.json").read_text().splitlines()]
        assert curve["y"] == pytest.approx(reported)
    page.screenshot("compare")


def test_smoothing_and_log_scale_redraw(runs: Path, serve: Callable[..., Any], page: Any) -> None:
    page.open(serve(runs).url)
    page.go("#/run/run_1")
    before = page.until("document.querySelector('.chart canvas')?.toDataURL()")
    page.press("l")
    page.until("document.querySelector('.chart canvas').toDataURL() !== arguments[0]", before)
    assert page.value("document.querySelector('#log').checked")
    before = page.value("document.querySelector('.chart canvas').toDataURL()")
    page.run("const s = document.querySelector('#smoothing'); s.value = 0.9; s.dispatchEvent(new Event('input'))")
    page.until("document.querySelector('.chart canvas').toDataURL() !== arguments[0]", before)
    page.press("l")
    page.run("const s = document.querySelector('#smoothing'); s.value = 0; s.dispatchEvent(new Event('input'))")


def test_hostile_names_metrics_and_logs_are_text(tmp_path: Path, serve: Callable[..., Any], page: Any) -> None:
    name = HOSTILE.replace("/", "")
    run = tmp_path / name
    write_run(run, 3)
    evil = {"error": HOSTILE, "trainer": HOSTILE, "metrics": {HOSTILE: HOSTILE, "n": 1}, "warnings": [HOSTILE]}
    failure = {"kind": HOSTILE, "rank": 0, "node": HOSTILE, "attempt": 0, "message": HOSTILE, "traceback": HOSTILE}
    change_record(run, **evil, state="failed", failures=[{**failure, "type": "", "log_lines": [HOSTILE]}])
    (run / "params.json").write_text(json.dumps({HOSTILE: [HOSTILE]}))
    (run / "result.json").write_text(
        "".join(json.dumps({HOSTILE: i, "\u202ex\u0000": i, "training_iteration": i}) + "\n" for i in (1, 2))
    )
    long_line = "y" * (10 << 20)
    log = f"{HOSTILE}\n\x1b[31mred\x1b[0m \x00 nul \u202e turned\n</pre><script>window.hacked=1</script>\n"
    log += f"{long_line}\nthe end\n"
    (run / "logs" / "rank_0.log").write_text(log)
    (run / "logs" / f"{HOSTILE}".replace("/", "")).write_text("odd name")
    (run / "logs" / "stacks_attempt_0.txt").write_text(f"==== rank 0 ====\n{HOSTILE}\n")
    page.open(serve(tmp_path).url)
    assert HOSTILE in page.text("#runs")
    page.run("document.querySelector('#runs a').click()")
    page.until("document.querySelector('[data-section=Logs] pre.log')?.textContent.includes('the end')")
    assert page.text("h1").startswith(HOSTILE)
    assert page.chart(HOSTILE)[0]["y"] == [1, 2]
    for section in ("Failures", "Configuration"):
        assert HOSTILE in page.text(f"[data-section={section}]")
    page.run("document.querySelector('details.stacks').open = true")
    page.until("document.querySelector('details.stacks pre').textContent.includes(arguments[0])", HOSTILE)
    shown_bytes = page.value("document.querySelector('[data-section=Logs] pre.log').textContent.length")
    assert shown_bytes < 1 << 20
    assert page.value("document.querySelectorAll('main img, main script').length") == 0
    assert page.value("window.hacked") is None
    page.screenshot("hostile")


def test_control_characters_of_logs_can_be_seen(tmp_path: Path, serve: Callable[..., Any], page: Any) -> None:
    write_run(tmp_path / "run", 3)
    (tmp_path / "run" / "logs" / "rank_0.log").write_bytes(
        b"\x1b[31mred\x00\xff\n<script>1</script>\n\xe2\x80\xaeturned\n"
    )
    page.open(serve(tmp_path).url)
    page.go("#/run/run")
    text = page.until("document.querySelector('[data-section=Logs] pre.log').textContent")
    assert text == "\u241b[31mred\u2400\ufffd\n<script>1</script>\n\u27e8202e\u27e9turned\n"


def test_an_experiment(tmp_path: Path, serve: Callable[..., Any], page: Any) -> None:
    experiment = make_experiment(
        tmp_path / "search", fail=2, metrics=["loss", "size"], modes=["min", "min"], searcher={"kind": "random"}
    )
    page.open(serve(tmp_path).url)
    assert "8 trials" not in page.text("#experiments") and "search" in page.text("#experiments")
    page.go("#/experiment/search")
    page.until("document.querySelectorAll('#importance tr').length > 0")
    assert page.value("document.querySelectorAll('#trials tbody tr').length") == 8
    losses = [experiment.trial(number).last_result["loss"] for number in range(8)]
    history, best = page.chart("history")
    assert history["y"] == pytest.approx(losses)
    assert best["y"] == pytest.approx([min(losses[: i + 1]) for i in range(8)])
    assert page.value("document.querySelectorAll('#parallel polyline').length") == 8
    parameters = page.value("[...document.querySelectorAll('#importance tr')].map((row) => row.dataset.parameter)")
    assert sorted(name.split("/")[-1] for name in parameters) == ["lr", "momentum", "net"]
    front = page.until("document.querySelector('[data-metric=\"Pareto front\"]').chartData?.[1]")
    points = [(trial.last_result["loss"], trial.last_result["size"]) for trial in map(experiment.trial, range(8))]
    best_points = [p for p in points if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points)]
    assert front["x"] == pytest.approx(sorted(x for x, _ in best_points))
    page.screenshot("experiment")


def test_light_dark_phone_and_keys(runs: Path, serve: Callable[..., Any], page: Any) -> None:
    page.open(serve(runs).url)
    scheme = "getComputedStyle(document.documentElement).colorScheme"
    page.run("document.activeElement.blur()")
    page.press("t")
    first = page.value(scheme)
    page.press("t")
    assert {first, page.value(scheme)} == {"light", "dark"}
    page.press("?")
    page.until("document.querySelector('dialog#help')?.open")
    page.run("document.querySelector('#help').close()")
    from selenium.webdriver.common.keys import Keys

    page.run("document.activeElement.blur()")
    page.press("j")
    page.press(Keys.ENTER)
    page.until("location.hash === '#/run/group%2Frun_8'")
    page.until("document.querySelectorAll('.chart canvas').length > 3")
    page.press(Keys.ESCAPE)
    page.until("location.hash === '#/'")
    page.driver.set_window_size(390, 844)
    for hash_ in ("#/", "#/run/run_2", "#/compare/run_1,run_3"):
        page.go(hash_)
        assert page.until("document.documentElement.scrollWidth <= window.innerWidth"), hash_
        page.screenshot("phone_" + hash_.strip("#/").split("/")[0])


def test_no_external_requests(runs: Path, serve: Callable[..., Any], page: Any) -> None:
    dashboard = serve(runs)
    page.open(dashboard.url)
    page.go("#/run/run_1")
    names = page.value("performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert names and all(name.startswith(dashboard.origin + "/api/") or name.startswith("data:") for name in names)
    assert not any("token" in name for name in names)


def test_the_committed_page_is_built_from_these_sources() -> None:
    """As build.mjs and assets.cmake compute it. If this fails: npm ci && npm run build in src/dashboard/page."""
    page = ROOT / "src" / "dashboard" / "page"
    kinds = (".js", ".css", ".html")
    names = [
        *(path for path in page.iterdir() if path.suffix in kinds),
        *page.glob("package*.json"),
        page / "build.mjs",
    ]
    hashes = "".join(hashlib.sha256(path.read_bytes()).hexdigest() + "\n" for path in sorted(names))
    wanted = hashlib.sha256(hashes.encode()).hexdigest()
    assert f"<!-- built from {wanted} -->" in (ROOT / "src" / "dashboard" / "assets" / "page.html").read_text()


def test_a_wrong_token_shows_why(runs: Path, serve: Callable[..., Any]) -> None:
    import urllib.error
    import urllib.request

    dashboard = serve(runs)
    for url in (dashboard.origin + "/", dashboard.origin + "/?token=wrong", dashboard.origin + "/api/list"):
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(url, timeout=60)
        assert b"use the URL" in refused.value.read()


def test_another_interface_uses_tls(runs: Path, serve: Callable[..., Any], page: Any) -> None:
    dashboard = serve(runs, "--host", "127.0.0.2", "--port", "0")
    assert dashboard.url.startswith("http://127.0.0.2:")
    dashboard = serve(runs, "--host", "0.0.0.0", "--port", "0")
    assert dashboard.url.startswith("https://") and "Fingerprint" in dashboard.output
    page.open(dashboard.url)
    assert len(shown(page)) == 10
    page.until("document.querySelector('#live').className === 'live'")
