//! Rows in HDFS, from Apache's own name node and data node on this machine: their jars lie in the folder that `HADOOP_JARS` names
//! (`.ci/run` fetches them, inside PySpark 2.4, the last that carries the servers). Without it this test says so and passes.

use crate::program::starlings;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::{TempDir, tempdir};

const NAME_NODE: &str = "org.apache.hadoop.hdfs.server.namenode.NameNode";
const DATA_NODE: &str = "org.apache.hadoop.hdfs.server.datanode.DataNode";
const SHELL: &str = "org.apache.hadoop.fs.FsShell";
/// Hadoop 2.7 looks into packages that later machines keep closed.
const OPENED: &[&str] = &[
    "-Xmx256m",
    "--add-opens",
    "java.base/java.lang=ALL-UNNAMED",
    "--add-exports",
    "java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "--add-opens",
    "java.security.jgss/sun.security.krb5=ALL-UNNAMED",
];

/// A cluster of one name node and one data node, with all its files in one folder.
struct Cluster {
    folder: TempDir,
    jars: PathBuf,
    port: u16,
    servers: Vec<Child>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Cluster {
    /// Starts one; `None` where there are no jars.
    fn start() -> Option<Cluster> {
        let jars = PathBuf::from(std::env::var_os("HADOOP_JARS")?);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut cluster = Cluster { folder: tempdir().unwrap(), jars, port, servers: Vec::new() };
        cluster.write_settings();
        let formatted = cluster.java(&[NAME_NODE, "-format", "-nonInteractive"]).output().unwrap();
        assert!(formatted.status.success(), "{formatted:?}");
        for server in [NAME_NODE, DATA_NODE] {
            let started =
                cluster.java(&[server]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            cluster.servers.push(started.unwrap());
            cluster.wait_for_name_node();
        }
        Some(cluster)
    }

    fn write_settings(&self) {
        let property = |(name, value): &(&str, String)| {
            format!("<property><name>{name}</name><value>{value}</value></property>")
        };
        let file = |properties: &[(&str, String)]| {
            let inside: String = properties.iter().map(property).collect();
            format!("<configuration>{inside}</configuration>")
        };
        let below = self.folder.path();
        let core = file(&[
            ("fs.defaultFS", self.address("")),
            ("hadoop.tmp.dir", below.join("data").to_string_lossy().into_owned()),
        ]);
        let anywhere = "127.0.0.1:0".to_string();
        let hdfs = file(&[
            ("dfs.replication", "1".to_string()),
            ("dfs.blocksize", "1048576".to_string()),
            ("dfs.webhdfs.enabled", "false".to_string()),
            ("dfs.namenode.http-address", anywhere.clone()),
            ("dfs.datanode.address", anywhere.clone()),
            ("dfs.datanode.ipc.address", anywhere.clone()),
            ("dfs.datanode.http.address", anywhere),
        ]);
        std::fs::write(below.join("core-site.xml"), core).unwrap();
        std::fs::write(below.join("hdfs-site.xml"), hdfs).unwrap();
        // Pages that the servers would show: the jars of PySpark come without.
        for pages in ["webapps/hdfs", "webapps/datanode"] {
            std::fs::create_dir_all(below.join(pages)).unwrap();
        }
    }

    fn address(&self, path: &str) -> String {
        format!("hdfs://127.0.0.1:{}{path}", self.port)
    }

    fn java(&self, arguments: &[&str]) -> Command {
        let classes = format!("{}:{}/*", self.folder.path().display(), self.jars.display());
        let mut command = Command::new("java");
        command.args(OPENED).args(["-cp", &classes]).args(arguments).stdin(Stdio::null());
        command
    }

    fn wait_for_name_node(&self) {
        for _ in 0..600 {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the name node did not start within a minute");
    }

    /// Puts a file where it was not; a data node that has not reported yet cannot take it.
    fn put(&self, file: &Path, to: &str) {
        let file = file.to_string_lossy();
        for _ in 0..10 {
            let put = self.java(&[SHELL, "-put", "-f", &file, to]).output().unwrap();
            if put.status.success() {
                return;
            }
        }
        panic!("the cluster does not take {file}");
    }
}

fn rows(count: u32) -> String {
    let row = |row: u32| format!("{row},{},{}\n", row % 13, ["no", "yes"][(row % 2) as usize]);
    "x,z,class\n".to_string() + &(0..count).map(row).collect::<String>()
}

fn job(train: &str) -> String {
    format!(
        "[data]\ntrain = '{train}'\nlabel = 'class'\n[learner]\nname = 'naive-bayes'\nkind = 'gaussian'\n\
         [cluster]\nworkers = 2\nlauncher = 'processes'\n"
    )
}

#[test]
fn rows_of_many_blocks_are_read_from_a_name_node_as_from_a_file() {
    let Some(cluster) = Cluster::start() else {
        eprintln!("skipped: there is no HDFS (HADOOP_JARS names a folder with its jars)");
        return;
    };
    let (here, text) = (tempdir().unwrap(), rows(300_000));
    assert!(text.len() > 3 << 20, "must be several blocks");
    std::fs::write(here.path().join("a.csv"), text).unwrap();
    cluster.put(&here.path().join("a.csv"), "/a.csv");

    std::fs::write(here.path().join("file.toml"), job("a.csv")).unwrap();
    let train = |job: &str| starlings(here.path(), &["train", job, "--json"]).report();
    let wanted = train("file.toml");
    for place in ["/a.csv", "/*.csv"] {
        std::fs::write(here.path().join("hdfs.toml"), job(&cluster.address(place))).unwrap();
        assert_eq!(train("hdfs.toml")["digest"], wanted["digest"], "{place}");
    }

    let missing = cluster.address("/none.csv");
    let refused = starlings(here.path(), &["inspect", &missing]);
    refused.failed(2, &[&missing]);
}
