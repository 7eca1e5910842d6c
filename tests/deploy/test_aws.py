"""deploy/aws applied for real, against moto, the local simulator of AWS; the other clouds' files only formatted."""

from __future__ import annotations

import importlib.util
import json
import os
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
from tests.stores.pg import free_port

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
TERRAFORM = shutil.which("terraform")
MIRROR = Path(os.environ.get("TERRAFORM_PLUGINS", "/opt/tf-plugins"))
AWS = MIRROR / "registry.terraform.io" / "hashicorp" / "aws"
MOTO = os.environ.get(
    "MOTO_PYTHON", sys.executable
)  # moto has many dependencies: a venv of its own may hold it

# What the simulator takes and does not give back; without this every plan would show it as drift.
FORGOTTEN = """
resource "aws_db_parameter_group" "this" {
  lifecycle { ignore_changes = [parameter] }
}
resource "aws_ecs_service" "this" {
  lifecycle { ignore_changes = [availability_zone_rebalancing] }
}
"""

SERVICES = "acm cloudwatchlogs ec2 ecr ecs elbv2 iam logs rds s3 secretsmanager sts".split()
OVERRIDE = """
provider "aws" {{
  region                      = "eu-central-1"
  access_key                  = "test"
  secret_key                  = "test"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  endpoints {{
{endpoints}
  }}
}}
"""


def has_moto() -> bool:
    if sys.executable == MOTO:
        return importlib.util.find_spec("moto") is not None
    return (
        subprocess.run([MOTO, "-c", "import moto.server"], capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(TERRAFORM is None, reason="no terraform here")
def test_all_clouds_files_are_formatted() -> None:
    done = subprocess.run(
        [str(TERRAFORM), "fmt", "-check", "-recursive", "-diff", str(DEPLOY)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {folder.name for folder in DEPLOY.iterdir() if list(folder.glob("*.tf"))} == {
        "aws",
        "gcp",
        "azure",
    }


def test_nothing_is_open_to_the_world() -> None:
    """What is written in the files, for the clouds whose files cannot be applied here too."""
    for file in DEPLOY.rglob("*.tf"):
        text = file.read_text()
        for line in text.splitlines():
            code = line.partition("#")[0]
            assert not re.search(r'(password|secret_string|secret_data)\w*\s*=\s*"', code), (file, line)
            if "0.0.0.0/0" in code:
                assert "contains(var.client_cidrs" in code, (file, line)
    assert "INGRESS_TRAFFIC_INTERNAL" in (DEPLOY / "gcp" / "main.tf").read_text()
    assert "public_network_access_enabled" in (DEPLOY / "azure" / "main.tf").read_text()


@pytest.fixture
def simulator() -> Iterator[str]:
    if not has_moto():
        pytest.skip("no moto here: pip install 'moto[server,ecs,rds,s3]', or name its Python in MOTO_PYTHON")
    port = free_port()
    process = subprocess.Popen(
        [MOTO, "-c", "import sys; from moto.server import main; main(sys.argv[1:])", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    until = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"{url}/moto-api/", timeout=1).close()
            break
        except OSError:
            assert time.monotonic() < until, "the simulator does not come up"
            time.sleep(0.2)
    yield url
    process.kill()
    process.wait()


def certificate(simulator: str) -> str:
    """A certificate that the simulator knows: the balancer's listener asks for it."""
    code = (
        "import boto3, sys; print(boto3.client('acm', endpoint_url=sys.argv[1], region_name='eu-central-1', "
        "aws_access_key_id='test', aws_secret_access_key='test')"
        ".request_certificate(DomainName='twofold.test')['CertificateArn'])"
    )
    done = subprocess.run([MOTO, "-c", code, simulator], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.long
@pytest.mark.skipif(
    TERRAFORM is None or not AWS.is_dir(), reason="no terraform with the AWS provider on disk here"
)
def test_aws_is_applied_without_drift_and_destroyed(tmp_path: Path, simulator: str) -> None:
    work = tmp_path / "aws"
    shutil.copytree(DEPLOY / "aws", work)
    endpoints = "\n".join(f'    {name} = "{simulator}"' for name in SERVICES if name != "cloudwatchlogs")
    (work / "simulator_override.tf").write_text(OVERRIDE.format(endpoints=endpoints) + FORGOTTEN)
    (work / "terraform.tfvars.json").write_text(
        json.dumps(
            {
                "image": "123456789012.dkr.ecr.eu-central-1.amazonaws.com/twofold@sha256:" + "0" * 64,
                "repository_arn": "arn:aws:ecr:eu-central-1:123456789012:repository/twofold",
                "certificate_arn": certificate(simulator),
                "client_cidrs": ["10.0.0.0/8"],
                "protect": False,
            }
        )
    )
    (tmp_path / "terraformrc").write_text(
        f'provider_installation {{\n  filesystem_mirror {{\n    path = "{MIRROR}"\n  }}\n}}\n'
    )

    def terraform(*arguments: str, allowed: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(
            [str(TERRAFORM), f"-chdir={work}", *arguments, "-no-color"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TF_CLI_CONFIG_FILE": str(tmp_path / "terraformrc"), "TF_IN_AUTOMATION": "1"},
            timeout=900,
        )
        assert done.returncode in allowed, (done.stdout + done.stderr)[-4000:]
        return done.stdout

    # The target that users call: init, plan, and the plan applied.
    made = subprocess.run(
        ["make", "-C", str(DEPLOY.parent), "deploy-aws", f"DEPLOY={tmp_path}", "APPROVE=1"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TF_CLI_CONFIG_FILE": str(tmp_path / "terraformrc"), "TF_IN_AUTOMATION": "1"},
        timeout=1_800,
    )
    assert made.returncode == 0, (made.stdout + made.stderr)[-4000:]
    assert "Apply complete!" in made.stdout
    assert not (work / "twofold.plan").exists()
    terraform("validate")
    state: dict[str, list[dict[str, Any]]] = {}
    shown = json.loads(terraform("show", "-json"))
    for one in shown["values"]["root_module"]["resources"]:
        state.setdefault(one["type"], []).append(one["values"])
    (database,) = state["aws_db_instance"]
    assert database["storage_encrypted"]
    assert not database["publicly_accessible"]
    assert database["engine"] == "postgres"
    (service,) = state["aws_ecs_service"]
    assert not service["network_configuration"][0]["assign_public_ip"]
    assert state["aws_lb"][0]["internal"]
    assert "aws_internet_gateway" not in state
    opened = {one["cidr_ipv4"] for one in state["aws_vpc_security_group_ingress_rule"] if one["cidr_ipv4"]}
    assert opened == {"10.0.0.0/8"}
    text = json.dumps(shown)
    assert "postgresql://" not in text.replace("postgresql://twofold:...@", "")
    drift = terraform("plan", "-input=false", "-detailed-exitcode", allowed=(0, 2))
    assert "No changes" in drift, drift[-4000:]
    refused = subprocess.run(
        [
            str(TERRAFORM),
            f"-chdir={work}",
            "plan",
            "-input=false",
            "-no-color",
            '-var=client_cidrs=["0.0.0.0/0"]',
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TF_CLI_CONFIG_FILE": str(tmp_path / "terraformrc")},
    )
    assert refused.returncode != 0
    assert "not for the whole world" in refused.stdout + refused.stderr
    terraform("destroy", "-input=false", "-auto-approve")
    assert "resources" not in json.loads(terraform("show", "-json")).get("values", {}).get("root_module", {})
