//! What the file may say, and what is said of it. Real devices are in the integration tests.

use toml::Table;

use super::*;

fn parsed(body: &str) -> Result<Box<dyn Treatment>, TreatmentError> {
    let table: Table = format!("filesystem = {body}").parse().unwrap();
    let body = table["filesystem"].clone();
    parse(&TreatmentSpec { kind: "filesystem".to_owned(), body, line: 7 })
}

#[test]
fn what_a_condition_says() {
    let options = parsed("{ options = \"sync,barrier=0\" }").unwrap();
    assert_eq!(
        options.describe(),
        ["mount option sync = sync", "mount option barrier = nobarrier"]
    );
    let body = "{ device = \"/dev/loop7\", type = \"ext4\", mkfs = [\"-O\", \"^has_journal\"], options = \"noatime\", allow_format = true }";
    assert_eq!(
        parsed(body).unwrap().describe(),
        [
            "mount of the data directory = ext4 (mkfs -O ^has_journal) on /dev/loop7",
            "mount option atime = noatime"
        ]
    );
    let body = "{ device = \"/dev/loop7\", type = \"xfs\", tablespace = \"/srv/pgio\", allow_format = true }";
    assert_eq!(
        parsed(body).unwrap().describe(),
        ["tablespace of the data set = xfs on /dev/loop7"]
    );
}

#[test]
fn the_directory_of_a_tablespace_is_a_plain_path() {
    for point in ["/srv/pgio", "/a"] {
        assert_eq!(tablespace::check_point(point), Ok(()));
    }
    for point in ["srv", "/", "/srv/", "//srv", "/srv/../etc", "/srv/./x", "/it's", "/a b", ""] {
        assert!(tablespace::check_point(point).is_err(), "{point}");
    }
}

#[test]
fn what_is_wrong_names_line_and_key() {
    for (body, expected) in [
        ("\"sync\"", "line 7: filesystem: must be a table, such as { options = \"barrier=0\" }"),
        (
            "{ option = \"sync\" }",
            "filesystem.option: is an unknown key; the nearest valid one is `options`",
        ),
        ("{}", "line 7: filesystem.options: is missing"),
        (
            "{ options = \"nosuch\" }",
            "line 7: filesystem.options: pgio does not know how to put `nosuch`",
        ),
        ("{ options = \"sync\", type = \"xfs\" }", "filesystem.type: goes with device"),
        (
            "{ options = \"sync\", mount = \"srv\" }",
            "filesystem.mount: must be the path of a mount",
        ),
        ("{ device = \"loop7\" }", "filesystem.device: must be a path in /dev"),
        ("{ device = \"/dev/loop7\" }", "filesystem.type: is missing"),
        (
            "{ device = \"/dev/loop7\", type = \"ext3\" }",
            "filesystem.type: cannot be `ext3`; the nearest valid one is `ext4`",
        ),
        ("{ device = \"/dev/loop7\", type = \"xfs\" }", "filesystem.allow_format: must be true"),
        (
            "{ device = \"/dev/loop7\", type = \"xfs\", allow_format = false }",
            "filesystem.allow_format: must be true",
        ),
        (
            "{ device = \"/dev/loop7\", type = \"xfs\", allow_format = true, options = \"barrier=0\" }",
            "since Linux 4.19",
        ),
        (
            "{ device = \"/dev/loop7\", type = \"btrfs\", allow_format = true, mkfs = [\"/dev/sda\"] }",
            "filesystem.mkfs: `/dev/sda` names a device",
        ),
        ("{ device = \"/dev/loop7\", mount = \"/srv\" }", "filesystem.mount: contradicts device"),
        (
            "{ options = \"sync\", tablespace = \"/srv\" }",
            "filesystem.tablespace: goes with device",
        ),
        (
            "{ device = \"/dev/loop7\", type = \"xfs\", allow_format = true, tablespace = \"srv\" }",
            "filesystem.tablespace: must be the path of a new directory",
        ),
    ] {
        let said = parsed(body).map(drop).unwrap_err().to_string();
        assert!(said.contains(expected) && said.contains("line 7"), "{body}: {said}");
    }
}

#[test]
fn arguments_of_mkfs_reach_no_other_device() {
    let check = |arguments: &[&str]| {
        format::check_arguments(&arguments.iter().map(|&a| a.to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(check(&["-b", "4096", "-O", "^has_journal", "-K"]), Ok(()));
    for wrong in [
        &["/dev/sdb"][..],
        &["-J", "device=UUID=x"],
        &["-l", "logdev=sdb"],
        &["sdb"],
        &["-b", "4096", "sdb"],
        &["-U", "random"],
        &["-Uclear"],
        &["-m", "uuid=x"],
        &["--uuid", "x"],
    ] {
        assert!(check(wrong).is_err(), "{wrong:?}");
    }
}
