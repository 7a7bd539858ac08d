"""chart.py WORK TOP SERVER: compares what the chart has rendered in WORK with the plain manifest, and examines its configuration."""

import subprocess
import sys
import tomllib

import yaml

WORK, TOP, SERVER = sys.argv[1:]
# What `check` may miss on this machine.
LACKING = ("No such file or directory", "is in use", "Address already in use", "no certificate or trusts no authority: see above")


def objects(path):
    with open(path) as file:
        return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(file) if each}


def container(rendered):
    return rendered["Deployment", "gridhaul"]["spec"]["template"]["spec"]["containers"][0]


def configuration(rendered):
    return rendered["ConfigMap", "gridhaul"]["data"]["gridhaul.toml"]


def check_configuration(name, text):
    path = f"{WORK}/{name}.toml"
    with open(path, "w") as file:
        file.write(text)
    report = subprocess.run([SERVER, "check", "--config", path], capture_output=True, text=True).stdout
    errors = [line for line in report.splitlines() if line.startswith("error ")]
    other = [line for line in errors if not any(words in line for words in LACKING)]
    assert "port-range" in report and not other, f"{name}: {report}"


rendered = {name: objects(f"{WORK}/{name}.yaml") for name in ("default", "service", "claim", "nodes")}
for name, all_of_them in rendered.items():
    with open(f"{WORK}/{name}.checked.yaml", "w") as file:
        yaml.safe_dump_all((each for (kind, _), each in all_of_them.items() if kind != "PodMonitor"), file)
    check_configuration(name, configuration(all_of_them))

# The plain manifest is what the defaults make, and the namespace.
plain = objects(f"{TOP}/packaging/kubernetes/gridhaul.yaml")
del plain["Namespace", "gridhaul"]
default = objects(f"{WORK}/default.yaml")
assert default["PersistentVolumeClaim", "gridhaul-data"]["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
assert plain.keys() == default.keys(), (plain.keys(), default.keys())
for key in plain:
    assert plain[key] == default[key], f"{key} differs:\n{yaml.safe_dump(plain[key])}\n{yaml.safe_dump(default[key])}"

# The versions.
with open(f"{TOP}/Cargo.toml", "rb") as file:
    version = tomllib.load(file)["workspace"]["package"]["version"]
with open(f"{TOP}/packaging/kubernetes/chart/Chart.yaml") as file:
    chart = yaml.safe_load(file)
assert chart["version"] == chart["appVersion"] == version, (chart, version)

# Without the network of the node: a Service with every port, and the address that clients reach.
service = rendered["service"]["Service", "gridhaul"]["spec"]
assert [port["port"] for port in service["ports"]] == [2811, *range(50000, 50020)], service
settings = tomllib.loads(configuration(rendered["service"]))
assert settings["port-range"] == "50000-50019" and settings["advertise-address"] == "192.0.2.10", settings
assert "admin-listen" not in settings and "exec" in container(rendered["service"])["readinessProbe"]
assert ("PodMonitor", "gridhaul") in rendered["service"]
assert "hostNetwork" not in rendered["service"]["Deployment", "gridhaul"]["spec"]["template"]["spec"]

settings = tomllib.loads(configuration(rendered["claim"]))
assert settings["max-connections"] == 7 and "metrics-listen" not in settings, settings
assert not any(kind == "PersistentVolumeClaim" for kind, _ in rendered["claim"])
[claim] = [each for each in rendered["claim"]["Deployment", "gridhaul"]["spec"]["template"]["spec"]["volumes"] if each["name"] == "data"]
assert claim["persistentVolumeClaim"] == {"claimName": "other"}, claim

# Data nodes: the server asks for the name of their service, which their certificate has, and selects none of their pods.
nodes = rendered["nodes"]
settings = tomllib.loads(configuration(nodes))
assert settings["nodes"] == ["dns:gridhaul-nodes.gridhaul.svc:7512"] and "least-uid" not in settings, settings
service = nodes["Service", "gridhaul-nodes"]["spec"]
pods = nodes["StatefulSet", "gridhaul-nodes"]["spec"]
labels = pods["template"]["metadata"]["labels"]
assert service["clusterIP"] == "None" and service["selector"] == labels == pods["selector"]["matchLabels"]
assert pods["replicas"] == 3 and pods["serviceName"] == "gridhaul-nodes", pods
assert nodes["PodDisruptionBudget", "gridhaul-nodes"]["spec"]["selector"]["matchLabels"] == labels
server_labels = nodes["Deployment", "gridhaul"]["spec"]["selector"]["matchLabels"]
assert not server_labels.items() <= labels.items(), (server_labels, labels)
[claim] = [each for each in pods["template"]["spec"]["volumes"] if each["name"] == "data"]
assert claim["persistentVolumeClaim"] == {"claimName": "gridhaul-data"}, claim
path = f"{WORK}/node.toml"
with open(path, "w") as file:
    file.write(nodes["ConfigMap", "gridhaul-nodes"]["data"]["node.toml"])
# This machine has neither the directory nor the certificate: only that may be wrong.
node = subprocess.run([SERVER, "node", "--config", path], capture_output=True, text=True, timeout=60)
wrong = [line for line in node.stderr.splitlines() if not any(words in line for words in LACKING)]
assert node.returncode == 1 and "No such file" in node.stderr, node
assert not [line for line in wrong if "node.toml:" in line], node.stderr
