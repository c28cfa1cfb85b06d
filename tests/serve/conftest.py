"""Companies that have trained, each once for all tests."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from tacit.company.folder import Folder
from tests.company.conftest import small_companies
from tests.exchange.companies import Companies, table
from tests.serve.online import Service
from tests.torture.processes import Processes


@pytest.fixture(scope="session", name="exchanged")
def _exchanged(tmp_path_factory):
    """An airline and an airport after a training in one exchange, with noise on what the airport sends."""
    companies = Companies(tmp_path_factory.mktemp("exchanged"), table(900))
    quick = 'learn = { learner = "linear" }\nalign.allow_edits = true\n'
    companies.set("airport", columns='categorical = ["port"], numeric = ["wind", "rain"]', more=quick)
    companies.align()
    outcomes = companies.train()
    assert not [one for one in outcomes.values() if isinstance(one, BaseException)], outcomes
    return companies


@pytest.fixture(scope="session", name="split")
def _split(tmp_path_factory):
    """The folders of an airline and an airport after a split training, with noise on what the airport sends."""
    companies = small_companies(tmp_path_factory.mktemp("split"))
    settings = companies[1].path / "party.toml"
    noise = 'protect.embedding = [{ name = "gaussian", snr = 4.0, clip = 8.0 }]\nalign.allow_edits = true'
    settings.write_text(settings.read_text().replace("protect.embedding = []", noise))
    with ThreadPoolExecutor(2) as both:
        list(both.map(Folder.align, companies, timeout=120))
        list(both.map(Folder.train, companies, timeout=120))
    return {company.config.name: company for company in companies}


@pytest.fixture(autouse=True)
def _state_of_the_test(tmp_path_factory, monkeypatch):
    """What a test's copies send is counted for it alone: another's copies would be older ones."""
    own = tmp_path_factory.mktemp("counted") / "state"
    shutil.copytree(os.environ["TACIT_STATE"], own)
    monkeypatch.setenv("TACIT_STATE", str(own))


@pytest.fixture(scope="session", name="processes")
def _processes(tmp_path_factory):
    """Starts parties as processes."""
    with Processes(tmp_path_factory.mktemp("processes") / "log") as found:
        yield found


@pytest.fixture(name="start")
def _start(processes):
    """Starts the service of a party's folder; whatever still runs at the end of a test is killed."""
    started = []

    def start(folder):
        started.append(Service(processes, folder, f"{folder}.events"))
        return started[-1]

    yield start
    for service in started:
        service.process.kill()
