"""The code of the benchmarks measures what it says; how fast something is is not tested."""

import json
from pathlib import Path

import pytest
from benchmarks import __main__ as command
from benchmarks import report, typescript, work_sampled
from benchmarks.processes import compute_percentile, drive
from benchmarks.results import Bench, Curve, Target
from benchmarks.suites import sessions
from benchmarks.suites.calls import NUMBERS, make_step

import toolwire

LOAD = (0.1, 0.2)


def plan(*steps, servers=("calc",)):
    return {"servers": list(servers), "steps": list(steps)}


@pytest.mark.parametrize("sdk", ["toolwire", "official"])
def test_the_peer_drives_each_sdk(sdk):
    """Calls one at a time and many at once, a list, and a stream of messages; the driver sees all of them."""
    calls = make_step("add", NUMBERS, "42.0", 3)
    many = make_step("add", NUMBERS, "42.0", 20, depth=8)
    listing = {"do": "listing", "with": {"server": "calc", "count": 2}}
    stream = {"do": "messages", "with": {"count": 5, "size": 200}}
    told = drive(sdk, plan(calls, many, listing, stream), tools="typed")
    one, flight, tools, sent = told["steps"]
    assert len(one["times"]) == 3
    assert flight["seconds"] > 0
    assert (tools["tools"], tools["pages"]) == (1, 1)
    assert (told["driver"]["messages"], told["driver"]["size"]) == (5, 200)
    assert told["driver"]["last"] > sent["begun"]


@pytest.mark.parametrize("sdk", ["toolwire", "official"])
def test_a_wrong_answer_fails_the_run(sdk):
    """A tool that adds wrongly fails the run, so that it gives no figures."""
    with pytest.raises(RuntimeError, match="a wrong answer"):
        drive(sdk, plan(make_step("add", NUMBERS, "42.0", 2)), tools="wrong")


@pytest.mark.parametrize("sdk", ["toolwire", "official"])
def test_a_wrong_answer_in_one_of_many_sessions_fails_the_run(sdk, monkeypatch):
    """A tool that returns another sum than the driver expects fails the run."""
    monkeypatch.setattr(sessions, "NUMBERS", {"a": 1, "b": 1})
    with pytest.raises(RuntimeError, match=f"{sdk}, 2 sessions"):
        sessions.measure_with_peer(sdk, 2)


@pytest.mark.parametrize("sdk", ["toolwire", "official"])
def test_calls_on_uvloop(sdk):
    """Each SDK can be driven on the other event loop, so that neither has it alone."""
    told = drive(sdk, plan(make_step("add", NUMBERS, "42.0", 3)), tools="typed", loop="uvloop")
    assert len(told["steps"][0]["times"]) == 3


def test_the_list_is_read_to_its_end():
    """More tools than go on one page are counted page by page."""
    told = drive(
        "toolwire",
        plan({"do": "listing", "with": {"server": "calc", "count": 1}}),
        tools="many",
        arguments=[1_001],
    )
    assert (told["steps"][0]["tools"], told["steps"][0]["pages"]) == (1_001, 2)


def test_the_floor_answers_and_listens():
    """It gives as many answers as there were lines, and counts a stream."""
    told = drive(
        "floor",
        plan(make_step("add", NUMBERS, "", 4), make_step("add", NUMBERS, "", 40, depth=8), servers=()),
    )
    assert len(told["steps"][0]["times"]) == 4
    stream = {"do": "messages", "with": {"count": 50, "size": 2_000}}
    assert drive("floor", plan(stream, servers=()), listen=True)["driver"]["messages"] == 50


def test_sessions_at_once():
    """Each has a peer of its own, and all of them end."""
    seen = drive("toolwire", plan(make_step("add", NUMBERS, "42.0", 2)), tools="typed", sessions=3)["driver"]
    assert seen["wall"] > 0


@pytest.mark.parametrize(
    ("power", "expected", "holds"),
    [
        (1, "linear", True),
        (2, "linear", False),
        (0.5, "linear", True),
        (0, "constant", True),
        (1, "constant", False),
    ],
)
def test_the_order_of_a_curve(power, expected, holds):
    """The exponent is computed from the points; a curve may grow more slowly than expected, but not faster."""
    curve = curved("made up", power, expected)
    assert curve.exponent == pytest.approx(power)
    assert curve.holds is holds


def test_fixed_costs_do_not_hide_a_bend():
    """The order of a curve is judged by its upper half."""
    points = [(float(x), 1e6 + x**2) for x in (1, 10, 100, 10_000, 100_000)]
    assert not Curve("bent", "x", "y", "linear", {"toolwire": points}, "toolwire").holds


def test_contenders_take_turns():
    """Each round begins with another contender, and each contender gets the same number of rounds."""
    turns, bench = [], Bench()

    def turn(name):
        turns.append(name)
        return {"time": float(len(turns))}

    names = {name: (lambda name=name: turn(name)) for name in ("a", "b")}
    bench.compare("made", "up", names, {"time": "s"}, rounds=2)
    assert turns == ["a", "b", "b", "a"]
    assert bench.find_row("made", "up", "time", "a").values == [1.0, 4.0]
    assert bench.compute_ratios(
        bench.find_row("made", "up", "time", "b"), bench.find_row("made", "up", "time", "a")
    ) == [
        2.0,
        0.75,
    ]


def test_percentiles():
    """The middle of an odd number, of an even one and of one; and one outlier in a hundred is left out."""
    assert [compute_percentile(times, 0.5) for times in ([3.0, 1.0, 2.0], [1.0, 4.0], [5.0])] == [
        2.0,
        2.5,
        5.0,
    ]
    times = [float(each) for each in range(100)]
    assert compute_percentile([1e9, *times], 0.99) == 99.0


def curved(name, power, expected="linear"):
    points = [(float(x), 5.0 * x**power) for x in (1, 10, 100, 1_000)]
    return Curve(name, "tools", "µs", expected, {"toolwire": points}, "toolwire")


def made_up(value=2.0):
    bench = Bench()
    for name, factor in {"toolwire": 1.0, "official": 10.0, "floor": 0.5}.items():
        turn = lambda factor=factor: {"p50": value * factor}  # noqa: E731
        bench.compare("made", "a call", {name: turn}, {"p50": "µs"}, rounds=3)
    bench.add_target("times faster", "at least", 5, [9.0, 10.0, 11.0], "a note")
    bench.add_target("times the floor", "at most", 1, [2.0])
    bench.curves.append(curved("A call, by tools", 1))
    return bench


def test_the_report_says_what_was_measured(tmp_path):
    """Targets come first, met or missed, then the curves, and each row with its ratios."""
    report.add(tmp_path, "calls", made_up(), LOAD)
    text = (tmp_path / report.TABLE).read_text()
    assert "| times faster | at least 5 | 10 | 9..11 | met | a note |" in text
    assert "| times the floor | at most 1 | 2 | 2..2 | **missed** |  |" in text
    assert "| A call, by tools | linear | 1.00 | 1.15 | yes | [plot](a-call-by-tools.svg) |" in text
    assert "|  |  | official | 20 µs | 20..20 | 10x | 20x |" in text
    assert text.index("## Targets") < text.index("## Growth") < text.index("## calls")
    printed = report.format_ratios(report.read(tmp_path))
    assert "met     times faster: 10 (9..11), at least 5; a note" in printed
    assert "a call, p50: official 10x, floor 0.5x" in printed


def test_a_run_of_one_suite_keeps_the_others(tmp_path):
    """Running one suite replaces all of its own figures, and no others."""
    report.add(tmp_path, "stream", made_up(), LOAD)
    report.add(tmp_path, "calls", made_up(), LOAD)
    before = report.read(tmp_path)["suites"]
    report.add(tmp_path, "calls", Bench(quick=True), LOAD)
    after = report.read(tmp_path)["suites"]
    assert list(after) == ["calls", "stream"]
    assert after["stream"] == before["stream"]
    assert (after["calls"]["rows"], after["calls"]["quick"]) == ([], True)
    assert "A quick run" in (tmp_path / report.TABLE).read_text()


def test_figures_of_another_machine_are_marked(tmp_path, monkeypatch):
    """Each suite records its machine; the table marks those that were measured on another one."""
    report.add(tmp_path, "stream", made_up(), LOAD)
    assert "earlier run" not in (tmp_path / report.TABLE).read_text()
    monkeypatch.setattr(report, "find_version", lambda _package: "99")
    report.add(tmp_path, "calls", made_up(), LOAD)
    text = (tmp_path / report.TABLE).read_text()
    assert text.count("**Of an earlier run, on Python") == 1
    assert text.index("## stream") < text.index("**Of an earlier run")


def test_the_data_tells_nothing_of_whose_machine_it_is(tmp_path):
    """The data has versions, cores and kernel, but no host name and no path."""
    report.add(tmp_path, "calls", made_up(), LOAD)
    found = json.loads((tmp_path / report.DATA).read_text())
    assert set(found["machine"]) == {"python", "cores", "kernel", "versions"}
    assert set(found["machine"]["versions"]) == set(report.PACKAGES)
    for private in (Path.home(), Path(__file__).parent):
        assert str(private) not in json.dumps(found)


def test_a_suite_that_fails_does_not_lose_the_others(tmp_path, monkeypatch, capsys):
    """The failed suites are named at the end, and the exit code is 1."""

    class Suites:
        @staticmethod
        def import_module(name):
            if name.endswith("imports"):
                raise ModuleNotFoundError("No module named 'benchmarks.suites.imports'")
            return Plots if name.endswith("plots") else Bad if name.endswith("stream") else Good

    class Good:
        run = staticmethod(lambda bench: bench.targets.append(Target("met", "at least", 1, 2, (2, 2))))

    class Bad:
        run = staticmethod(lambda _bench: 1 / 0)

    class Plots:
        draw = staticmethod(lambda _curve, _path: None)

    monkeypatch.setattr(command, "importlib", Suites)
    assert command.main(["imports", "stream", "calls", "--out", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert "met     met: 2" in out
    assert "The suite 'imports' cannot run: No module named" in err
    assert "ZeroDivisionError" in err
    assert "Failed: stream, imports." in err
    assert list(report.read(tmp_path)["suites"]) == ["calls"]


def test_unknown_suites_are_refused(capsys):
    """The error lists the suites that exist."""
    with pytest.raises(SystemExit):
        command.main(["cals"])
    assert "no such suite: cals; there are calls, stream" in capsys.readouterr().err


def test_plots_are_the_same_for_the_same_figures(tmp_path):
    """The same figures give the same file, which names what is drawn."""
    pytest.importorskip("matplotlib", reason="of requirements-bench.txt")
    from benchmarks import plots  # noqa: PLC0415 - needs matplotlib

    for name in ("one.svg", "two.svg"):
        plots.draw(curved("A call, by tools", 2).to_json(), tmp_path / name)
    one, two = ((tmp_path / name).read_text() for name in ("one.svg", "two.svg"))
    assert one == two
    assert "A call, by tools: linear does NOT hold (exponent 2.00)" in one


def test_without_npm_the_typescript_sdk_is_left_out_and_said_to_be(monkeypatch, tmp_path, capfd):
    """A machine without Node can still measure the other SDKs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(typescript, "BUILD", tmp_path / "build")
    assert typescript.is_available.__wrapped__() is False
    assert capfd.readouterr().err == "Without the TypeScript SDK: npm was not found\n"
    assert not (tmp_path / "build").exists()


def test_versions_of_the_typescript_sdk_are_pinned_and_come_from_no_named_host():
    """Pinned versions make figures repeatable, and the packages can come from any registry."""
    wanted = json.loads((typescript.HERE / "package.json").read_text())
    assert all(version[0].isdigit() for version in wanted["dependencies"].values())
    assert sorted(path.name for path in typescript.HERE.iterdir() if path.is_file()) == [
        "__init__.py",
        "drive.mjs",
        "package.json",
    ]


def test_the_sampler_knows_the_modules_of_each_layer():
    """Every layer that names modules of toolwire finds some of today's, and the hot paths are in a named layer."""
    source = Path(toolwire.__file__).parent
    modules = [
        ".".join(("toolwire", *path.relative_to(source).with_suffix("").parts)).removesuffix(".__init__")
        for path in source.rglob("*.py")
    ]
    found = {name: work_sampled.match_layer(f"{name}:function") for name in modules}
    found |= {
        name: work_sampled.match_layer(name)
        for name in ("toolwire._protocol.lines:encode", "asyncio.events:f")
    }
    hot = ("_protocol", "_conversation", "messages", "tools", "hooks", "permissions", "client")
    for name, layer in found.items():
        if name.split(".")[1:2] in ([each] for each in hot):
            assert layer != "the rest of toolwire", name
    named = {layer for pattern, layer in work_sampled.LAYER_PATTERNS if "toolwire" in pattern}
    assert named - {"user's function, and measuring"} <= set(found.values())
