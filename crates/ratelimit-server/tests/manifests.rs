//! The Dockerfile and the manifests for Kubernetes, compared with the server: options, paths, ports, the time to end.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory as _, Parser as _};
use ratelimit_server::{Args, Server};
use serde_json::Value;

fn example(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/server").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn manifests() -> Vec<Value> {
    serde_saphyr::from_multiple(&example("kubernetes.yaml")).expect("YAML")
}

fn of_kind<'a>(manifests: &'a [Value], kind: &str) -> &'a Value {
    manifests.iter().find(|manifest| manifest["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

/// The variables that the server reads.
fn variables() -> BTreeSet<String> {
    let command = Args::command();
    let names = command.get_arguments().filter_map(|option| option.get_env());
    names.map(|name| name.to_str().unwrap().to_owned()).collect()
}

#[test]
fn the_manifests_belong_together() {
    let all = manifests();
    let kinds: Vec<&str> = all.iter().map(|manifest| manifest["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Secret", "ConfigMap", "Deployment", "Service"]);
    for manifest in &all {
        assert!(manifest["apiVersion"].is_string() && manifest["metadata"]["name"] == "ratelimit-server");
    }
    let (deployment, service) = (&of_kind(&all, "Deployment")["spec"], &of_kind(&all, "Service")["spec"]);
    let labels = &deployment["template"]["metadata"]["labels"];
    assert!(labels["app"] == "ratelimit-server" && *labels == deployment["selector"]["matchLabels"]);
    assert_eq!(*labels, service["selector"]);
    assert_eq!(service["clusterIP"], "None");
    let pod = &deployment["template"]["spec"];
    let container = &pod["containers"][0];
    let ports = |list: &Value, number: &str| -> Vec<(String, u64)> {
        let ports = list.as_array().unwrap().iter();
        ports
            .map(|port| (port["name"].as_str().unwrap().to_owned(), port[number].as_u64().unwrap()))
            .collect()
    };
    let of_container = ports(&container["ports"], "containerPort");
    assert_eq!(of_container, ports(&service["ports"], "port"));
    for port in service["ports"].as_array().unwrap() {
        assert_eq!(port["targetPort"], port["name"]);
    }
    // Nothing that is mounted or read is missing.
    let volume = &pod["volumes"][0];
    assert_eq!(volume["name"], container["volumeMounts"][0]["name"]);
    assert_eq!(volume["configMap"]["name"], of_kind(&all, "ConfigMap")["metadata"]["name"]);
    let secret = of_kind(&all, "Secret");
    for variable in container["env"].as_array().unwrap() {
        let reference = &variable["valueFrom"]["secretKeyRef"];
        assert_eq!(reference["name"], secret["metadata"]["name"]);
        assert!(secret["stringData"][reference["key"].as_str().unwrap()].is_string(), "{variable}");
        assert!(variables().contains(variable["name"].as_str().unwrap()), "{variable}");
    }
}

/// The options are those of the server, the file is valid, and the pod is given enough time to end.
#[tokio::test]
async fn the_server_starts_with_what_the_manifests_say() {
    let all = manifests();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("limits.toml");
    std::fs::write(&file, of_kind(&all, "ConfigMap")["data"]["limits.toml"].as_str().unwrap()).unwrap();
    let deployment = &of_kind(&all, "Deployment")["spec"];
    let pod = &deployment["template"]["spec"];
    let container = &pod["containers"][0];
    let strings = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let mut options = vec!["ratelimit-server".to_owned()];
    options.extend(strings(&container["args"]));
    options.extend(["--http=127.0.0.1:0", "--grpc=127.0.0.1:0", "--redis=127.0.0.1:0"].map(str::to_owned));
    let secrets = &of_kind(&all, "Secret")["stringData"];
    for (option, key) in [("--receipt-key", "receipt-key"), ("--store", "store")] {
        options.push(format!("{option}={}", secrets[key].as_str().unwrap()));
    }
    options.push(format!("--config={}", file.display()));
    let args = Args::try_parse_from(options).unwrap();
    assert_eq!(u64::from(args.instances), deployment["replicas"].as_u64().unwrap());
    let grace = Duration::from_secs(pod["terminationGracePeriodSeconds"].as_u64().unwrap());
    assert!(grace > args.linger + args.drain + Duration::from_secs(2), "{grace:?}");
    // A probe fails at least once before the server stops accepting connections.
    let ready = &container["readinessProbe"];
    assert!(Duration::from_secs(2 * ready["periodSeconds"].as_u64().unwrap()) < args.linger);
    let server = Server::start(args).await.unwrap();
    let address = server.addresses().http.unwrap();
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let get = &container[probe]["httpGet"];
        assert_eq!(get["port"], "http");
        let path = get["path"].as_str().unwrap();
        assert_eq!(status(address, path).await, "HTTP/1.1 200 OK", "{probe}");
    }
}

#[test]
fn the_pod_has_no_rights() {
    let all = manifests();
    let pod = &of_kind(&all, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert!(pod["securityContext"]["runAsUser"].as_u64().is_some_and(|user| user > 0));
    let container = &pod["containers"][0]["securityContext"];
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(container["readOnlyRootFilesystem"], true);
    assert_eq!(container["capabilities"]["drop"][0], "ALL");
}

/// `cargo xtask server-image` builds it and tries it.
#[test]
fn the_image_has_the_servers_options_and_another_user_than_root() {
    let text = example("Dockerfile");
    let lines: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(' ')).collect();
    let last = |instruction: &str| lines.iter().rfind(|(first, _)| *first == instruction).unwrap().1;
    assert_eq!(lines.iter().filter(|(instruction, _)| *instruction == "FROM").count(), 2, "two stages");
    assert_eq!(last("USER"), "65532:65532");
    let all = manifests();
    let pod = &of_kind(&all, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsUser"], 65_532, "as in the manifest");
    let settings =
        lines.iter().filter(|(instruction, _)| *instruction == "ENV").flat_map(|(_, rest)| rest.split(' '));
    let settings: Vec<(&str, &str)> = settings.map(|setting| setting.split_once('=').unwrap()).collect();
    let of_server: Vec<_> = settings.iter().filter(|(name, _)| name.starts_with("RATELIMIT_")).collect();
    for (name, _) in &of_server {
        assert!(variables().contains(*name), "{name}");
    }
    let ports: Vec<&str> = of_server.iter().filter_map(|(_, value)| value.strip_prefix("0.0.0.0:")).collect();
    assert_eq!(ports.join(" "), last("EXPOSE"));
    let (_, config) = of_server.iter().find(|(name, _)| *name == "RATELIMIT_CONFIG").unwrap();
    assert!(text.contains(&format!("COPY examples/server/server.toml {config}\n")));
    let mounted = pod["containers"][0]["volumeMounts"][0]["mountPath"].as_str().unwrap();
    assert_eq!(*config, format!("{mounted}/limits.toml"));
}

/// The first line of the answer to a GET.
async fn status(address: std::net::SocketAddr, path: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}
