"""What the how-to of deployment names is right, in the eyes of systemd and of the schemas of Kubernetes."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.docs.test_blocks import understood

DEPLOY = Path(__file__).parent.parent / "deploy"
MANIFESTS = sorted(DEPLOY.glob("kubernetes-*.yaml"))


def test_the_containerfile_copies_what_is_there_and_ends_with_the_command():
    lines = [line for line in (DEPLOY / "Containerfile").read_text().replace("\\\n", "").splitlines() if line]
    steps = [line.split(maxsplit=1) for line in lines if not line.startswith("#")]
    assert {step for step, _ in steps} == {"FROM", "COPY", "RUN", "ENV", "USER", "VOLUME", "ENTRYPOINT", "CMD"}
    copied = [name for step, rest in steps if step == "COPY" and "--from" not in rest for name in rest.split()[:-1]]
    assert {"src", "pyproject.toml", "constraints.txt"} <= set(copied)
    assert [name for name in copied if not (DEPLOY.parent / name).exists()] == []
    assert ["ENTRYPOINT", '["tacit"]'] in steps


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_understands_the_unit_and_tacit_its_command(tmp_path):
    text = (DEPLOY / "tacit@.service").read_text()
    (command,) = [line.partition("=")[2] for line in text.splitlines() if line.startswith("ExecStart=")]
    program, *words = shlex.split(command)
    understood(shlex.join(["tacit", *words]))
    unit = tmp_path / "tacit@airline.service"
    unit.write_text(text.replace(program, f'"{sys.executable}"'))  # a path with a space, perhaps
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    assert (done.returncode, [line for line in done.stderr.splitlines() if unit.name in line]) == (0, []), done
    unit.write_text(text.replace("ProtectSystem=strict", "ProtectSystm=strict"))
    noticed = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    assert "ProtectSystm" in noticed.stderr, "it looks"


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_manifests_fit_the_schemas_of_kubernetes(path, version):
    for one in yaml.safe_load_all(path.read_text()):
        kubernetes_validate.validate(one, version, strict=True)


def test_the_schemas_notice_a_misspelt_key():
    (one,) = [one for one in yaml.safe_load_all(MANIFESTS[0].read_text()) if one["kind"] == "StatefulSet"]
    one["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(one, "1.37", strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_names_in_manifests_mean_each_other(path):
    found = {}
    for one in yaml.safe_load_all(path.read_text()):
        found.setdefault(one["kind"], []).append(one)
    (stateful,), (secret,) = found["StatefulSet"], found["Secret"]
    pod = stateful["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    labels, ports = pod["metadata"]["labels"], {one["name"] for one in container["ports"]}
    assert stateful["spec"]["selector"]["matchLabels"] == labels
    for service in found["Service"]:
        assert service["spec"]["selector"] == labels
        assert {one["targetPort"] for one in service["spec"]["ports"]} <= ports
    assert stateful["spec"]["serviceName"] in {one["metadata"]["name"] for one in found["Service"]}
    (policy,) = found["NetworkPolicy"]
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} <= ports
    assert container["envFrom"] == [{"secretRef": {"name": secret["metadata"]["name"]}}]
    volumes = [one["metadata"]["name"] for one in stateful["spec"]["volumeClaimTemplates"]]
    volumes += [one["name"] for one in pod["spec"]["volumes"]]
    assert {one["name"] for one in container["volumeMounts"]} == set(volumes)
    assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} <= ports
    understood(shlex.join(container["command"]))
    http = container["command"][-1].rpartition(":")[2]
    assert int(http) in {one["containerPort"] for one in container["ports"]}
