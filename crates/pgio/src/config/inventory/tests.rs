//! Output of the programs (Ansible 2.14 and Slurm 22.05 as recorded, Kubernetes in the form of its API), and what
//! else they might print.

use super::expand::expand;
use super::*;
use crate::config::experiment::{self, Target};

const ANSIBLE: &str = include_str!("recorded/ansible-inventory.json");
const PODS: &str = include_str!("recorded/kubectl-pods.json");
const NODES: &str = include_str!("recorded/kubectl-nodes.json");
const HOSTNAMES: &str = include_str!("recorded/scontrol-hostnames.txt");
const SINFO: &str = include_str!("recorded/sinfo.txt");

fn names(text: &str, group: Option<&str>) -> Vec<String> {
    let nodes = parse(text, group).unwrap();
    nodes.into_iter().map(|node| format!("{} {}", node.name, node.address)).collect()
}

#[test]
fn ansible_prints_groups_hosts_and_their_addresses() {
    let all = ["db1.example.com 10.0.0.11", "db2.example.com db2.example.com", "web1 10.0.1.5"];
    let mut found = names(ANSIBLE, None);
    found.sort();
    assert_eq!(found, all);
    // Groups hold groups; a host in two of them counts once.
    assert_eq!(names(ANSIBLE, Some("databases")), all[..2]);
    assert_eq!(names(ANSIBLE, Some("primary")), all[..1]);
    assert_eq!(parse(ANSIBLE, Some("dbs")).unwrap_err(), "has no group `dbs`");
}

#[test]
fn kubernetes_prints_pods_and_nodes() {
    assert_eq!(names(PODS, None), ["pg-0 10.244.0.6", "pg-1 10.244.0.7"]);
    assert_eq!(names(NODES, None), ["node-1 192.168.7.2"]);
    let pending = PODS.replacen("\"Running\"", "\"Pending\"", 1);
    assert_eq!(
        parse(&pending, None).unwrap_err(),
        "prints pod `pg-0` without an address (Pending)"
    );
    let service = r#"{"kind": "Service", "metadata": {"name": "pg"}}"#;
    assert!(parse(service, None).unwrap_err().contains("prints a Service, which is neither"));
}

#[test]
fn slurm_prints_a_name_on_each_line_and_a_node_once_for_each_partition() {
    assert_eq!(names(HOSTNAMES, None), ["n1 n1", "n2 n2", "n3 n3"]);
    assert_eq!(SINFO.lines().count(), 6, "two partitions: {SINFO}");
    assert_eq!(names(SINFO, None), ["n1 n1", "n2 n2", "n3 n3"]);
}

#[test]
fn invalid_inventory_output_is_refused_in_one_line() {
    let refused = |text: &str, expected: &str| {
        let why = parse(text, None).unwrap_err();
        assert!(why.contains(expected) && !why.contains('\n'), "{why}");
    };
    refused("", "names no node");
    refused("[]", "names no node");
    refused("Usage: sinfo [OPTIONS]", "prints `Usage: sinfo [OPTIONS]`, which is not a node name");
    refused("n1\n-oProxyCommand=touch x", "`-oProxyCommand=touch x`");
    refused("n1\nn2\u{7}\u{1b}[31m", "which is not a node name");
    refused("{\"a\": ", "prints JSON that cannot be parsed");
    refused("{\"a\": 1}", "prints JSON of an unknown kind");
    refused("[\"n1\", 2]", "holds more than names");
    refused("[\"n1 user=postgres\"]", "`n1 user=postgres`");
    let many: String = (0..=MAX_NODES).map(|n| format!("n{n}\n")).collect();
    refused(&many, "names 1001 nodes; the maximum is 1000");
    assert!(parse(SINFO, Some("db")).unwrap_err().contains("has no groups"));
    assert!(from_names(&["a", "b", "a"].map(str::to_owned)).unwrap_err().contains("`a` twice"));
}

const FILE: &str = r#"# A fleet.
[experiment]
together = true

[hosts]
inventory = "list"   # by hand
ssh = "root@{address}"

[targets]
inventory = "list"
dsn = "host={address} user=u dbname=d"
host = "{name}"

[workload]
kind = "commit"

[[condition]]
name = "a"
"#;

#[test]
fn each_node_becomes_a_section_and_all_other_lines_stay() {
    let mut commands = Vec::new();
    let mut run = |command: &str| {
        commands.push(command.to_owned());
        Ok(ANSIBLE.to_owned())
    };
    let text = expand(FILE, "x.toml", &mut run).unwrap().unwrap();
    assert_eq!(commands, ["list", "list"]);
    for (before, after) in FILE.lines().zip(text.lines()) {
        assert!(after == before || after == format!("# {before}"), "{before} {after}");
    }
    let e = experiment::parse(&text, "x.toml", "x", &[], &[]).unwrap();
    assert_eq!(e.hosts["db1.example.com"].ssh.as_deref(), Some("root@10.0.0.11"));
    let Target::Server { dsn, host, .. } = &e.targets["web1"] else { panic!("{e:?}") };
    assert_eq!(dsn.expose(), "host=10.0.1.5 user=u dbname=d");
    assert_eq!(host.as_deref(), Some("web1"));
    assert_eq!(e.conditions[0].targets().count(), 3);
    // Once expanded, it stays as it is.
    assert_eq!(expand(&text, "x.toml", &mut |_| panic!("nothing to run")).unwrap(), None);
}

#[test]
fn a_list_needs_no_command_and_a_file_without_an_inventory_no_change() {
    let list = "[targets]\ninventory = [\n  \"a\",\n  \"b\",\n]\nprivate = true\n\
                [targets.c]\nprivate = true\n[workload]\nkind = \"commit\"\n\
                [[condition]]\nname = \"x\"\ntarget = [\"a\", \"b\", \"c\"]\n";
    let text = expand(list, "x.toml", &mut |_| panic!("nothing to run")).unwrap().unwrap();
    let e = experiment::parse(&text, "x.toml", "x", &[], &[]).unwrap();
    assert_eq!(e.targets.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    for text in ["[target]\nprivate = true\n", "no toml ]["] {
        assert_eq!(expand(text, "x.toml", &mut |_| panic!("nothing to run")).unwrap(), None);
    }
}

#[test]
fn errors_name_the_line_of_the_inventory() {
    let refused = |text: &str, printed: Result<&str, &str>, expected: &str| {
        let mut run = |_: &str| printed.map(str::to_owned).map_err(str::to_owned);
        let error = expand(text, "x.toml", &mut run).unwrap_err().to_string();
        assert_eq!(error, expected);
    };
    let at = "x.toml:6: hosts.inventory: ";
    let rubbish = "the command prints `No inventory was parsed`, which is not a node name";
    refused(FILE, Ok("No inventory was parsed"), &format!("{at}{rubbish}"));
    refused(FILE, Err("`list` failed"), &format!("{at}`list` failed"));
    let wrong = "must be a command or an array of names, but is of type integer";
    refused("[targets]\ninventory = 5\n", Ok(""), &format!("x.toml:2: targets.inventory: {wrong}"));
    let inline = "x.toml:1: targets.inventory: must be on a line of its own below [targets]";
    refused("targets = { inventory = \"list\" }\n", Ok("n1"), inline);
    let twice = "[targets]\ninventory = [\"a\"]\nprivate = true\n[targets.a]\nprivate = true\n";
    let both = "names `a`, which has a section of its own; remove one";
    refused(twice, Ok(""), &format!("x.toml:2: targets.inventory: {both}"));
}
