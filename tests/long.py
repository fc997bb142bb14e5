"""Which tests are long: tests/long.txt lists them, and `make check` leaves them out.

`pytest --write-long` measures what each test costs: its own time, with the fixtures made for it alone, and its share of the
fixtures that it uses together with others. So a module's expensive fixture makes its only user long, and the browser of
hundreds of tests costs each of them next to nothing.
"""

import re
from collections import Counter
from pathlib import Path
from time import perf_counter

import pytest

ALL_SLOW = re.compile(r"^pytestmark = \[?pytest\.mark\.slow\b", re.MULTILINE)
LONG = Path(__file__).with_name("long.txt")
LIMIT = 0.15
"""Seconds that a test may cost."""


def pytest_addoption(parser):
    parser.addoption("--write-long", action="store_true", help="measure which tests are long: writes tests/long.txt")


def pytest_ignore_collect(collection_path, config):
    """Without slow tests, a file that has no others is not even imported: it would bring trainers and servers with it."""
    if not config.option.markexpr.startswith("not slow") or not collection_path.match("test_*.py"):
        return None
    return bool(ALL_SLOW.search(collection_path.read_text(encoding="utf-8"))) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    long = set(LONG.read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid in long:
            item.add_marker(pytest.mark.long)


def pytest_configure(config):
    if config.getoption("--write-long"):
        config.pluginmanager.register(_Shared())
        if not hasattr(config, "workerinput"):
            chosen = config.option.markexpr or config.option.keyword or any("::" in each for each in config.args)
            config.pluginmanager.register(_List(everything=not chosen))


class _Shared:
    """Says in a test's last report which shared fixtures it uses, and what making and ending them took of its time."""

    def __init__(self):
        self.seconds = Counter()
        self.made = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        if fixturedef.scope == "function":
            return (yield)
        key = f"{request.node.nodeid} {fixturedef.argname}"
        self.made.add(key)

        def begin():
            self.seconds[key] -= perf_counter()

        def end():
            self.seconds[key] += perf_counter()

        fixturedef.addfinalizer(end)  # finalizers run in reverse: its own, which the setup adds, is between these two
        begin()
        try:
            return (yield)
        finally:
            end()
            fixturedef.addfinalizer(begin)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item):
        try:
            return (yield)
        finally:
            keys = {key: key.rpartition(" ") for key in self.made}
            uses = [key for key, (node, _, name) in keys.items() if self._uses(item, node, name)]
            item.user_properties.append(("shared", {"uses": uses, "seconds": dict(self.seconds)}))
            self.seconds.clear()

    @staticmethod
    def _uses(item, node, name):
        return name in item.fixturenames and item.nodeid.startswith(node)


class _List:
    """Writes the list."""

    def __init__(self, everything):
        self.everything = everything  # of a file; else only what has run is known
        self.own = Counter()
        self.shared = Counter()
        self.uses = {}
        self.slow = set()

    def pytest_runtest_logreport(self, report):
        self.own[report.nodeid] += report.duration
        if "slow" in report.keywords:
            self.slow.add(report.nodeid)
        for name, value in report.user_properties:
            if name == "shared":
                self.uses[report.nodeid] = value["uses"]
                self.shared.update(value["seconds"])
                self.own[report.nodeid] -= sum(value["seconds"].values())

    def long(self):
        """Tests that cost more than `LIMIT`; what is left out bears no share, so that others may become long."""
        out, longer = None, self.slow
        while out != longer:
            out = longer
            users = Counter(key for test, keys in self.uses.items() if test not in out for key in keys)
            left = {test: keys for test, keys in self.uses.items() if test not in out}
            shares = {test: sum(self.shared[key] / users[key] for key in keys) for test, keys in left.items()}
            longer = out | {test for test, share in shares.items() if self.own[test] + share > LIMIT}
        return out - self.slow

    def pytest_sessionfinish(self):
        measured = {test.partition("::")[0] for test in self.own} if self.everything else self.own
        entries = LONG.read_text(encoding="utf-8").splitlines()
        others = {test for test in entries if (test.partition("::")[0] if self.everything else test) not in measured}
        LONG.write_text("".join(f"{test}\n" for test in sorted(others | self.long())), encoding="utf-8")
