//! Rows and checkpoints in a bucket, from a real S3-compatible server: `moto_server` (`pip install 'moto[s3]' flask flask-cors`),
//! where it is installed; without it this test says so and passes.

use crate::program::{Running, program, starlings};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::tempdir;

const SECRET: &str = "very-secret";

struct Server {
    process: Child,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// Starts a server; `None` where none is installed.
    fn start() -> Option<Server> {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let process = Command::new("moto_server")
            .args(["-H", "127.0.0.1", "-p", &address.port().to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let server = Server { process, address };
        for _ in 0..600 {
            if TcpStream::connect_timeout(&address, Duration::from_millis(100)).is_ok() {
                return Some(server);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the server did not start within a minute");
    }

    /// Makes a bucket, or puts an object into one.
    fn put(&self, path: &str, body: &[u8]) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "PUT /{path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
            self.address
        )
        .unwrap();
        stream.write_all(body).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// The binary with the keys of this store in its surroundings.
    fn run(&self, folder: &Path, arguments: &[&str]) -> Running {
        let surroundings = [
            ("AWS_ACCESS_KEY_ID", "testing".to_string()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_string()),
            ("AWS_REGION", "us-east-1".to_string()),
            ("AWS_ENDPOINT", format!("http://{}", self.address)),
            ("AWS_ALLOW_HTTP", "true".to_string()),
        ];
        let mut command = Command::new(program());
        Running::spawn(command.args(arguments).envs(surroundings).current_dir(folder))
    }
}

fn rows(count: u32) -> String {
    let row = |row: u32| {
        let (x, z) = (row % 17, row % 13);
        format!("{x},{z},{}\n", if x + z > 14 { "high" } else { "low" })
    };
    "x,z,class\n".to_string() + &(0..count).map(row).collect::<String>()
}

fn job(train: &str, checkpoints: &str) -> String {
    format!(
        "[data]\ntrain = '{train}'\nlabel = 'class'\n\
         [learner]\nname = 'logistic-regression'\nsolver = 'sgd'\nlearning_rate = 0.01\n\
         [train]\nsteps = 1000000000\nbatch = 64\nseed = 3\n[cluster]\nworkers = 2\n\
         [checkpoint]\npath = '{checkpoints}'\nevery = 20\n"
    )
}

#[test]
fn a_killed_job_goes_on_from_its_checkpoint_in_a_bucket_to_the_same_bits() {
    let Some(server) = Server::start() else {
        eprintln!(
            "skipped: moto_server is not installed (pip install 'moto[s3]' flask flask-cors)"
        );
        return;
    };
    let (text, folder) = (rows(2000), tempdir().unwrap());
    server.put("flock", b"");
    server.put("flock/rows/part-0.csv", text.as_bytes());
    let job_text = job("s3://flock/rows/", "s3://flock/job-1");
    std::fs::write(folder.path().join("job.toml"), job_text).unwrap();
    let train = ["train", "job.toml", "--json", "--launcher", "processes"];

    let mut running = server.run(folder.path(), &train);
    let workers: Vec<u64> =
        (0..2).map(|_| running.event("worker")["pid"].as_u64().unwrap()).collect();
    running.event("checkpoint");
    let last = running.event("checkpoint")["step"].as_u64().unwrap();
    running.signal("KILL");
    for worker in workers {
        // With nobody to work for it may be gone already.
        let _ = Command::new("kill").args(["-KILL", &worker.to_string()]).output();
    }
    drop(running);

    let listed = server.run(folder.path(), &["inspect", "s3://flock/job-1"]).end();
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.out.contains("verified"), "{listed:?}");

    let steps = format!("train.steps={}", last + 200);
    let shorter = [&train[..], &["--set", &steps]].concat();
    let resumed = server.run(folder.path(), &[&shorter[..], &["--resume"]].concat()).end();
    let report = resumed.report();
    assert!(!format!("{resumed:?}").contains(SECRET));
    let events = resumed.events();
    let first = events.iter().find(|event| event["event"] == "step").unwrap();
    assert!(first["step"].as_u64().unwrap() >= last, "it began anew: {first}");

    let here = tempdir().unwrap();
    std::fs::write(here.path().join("rows.csv"), text).unwrap();
    std::fs::write(here.path().join("job.toml"), job("rows.csv", "kept")).unwrap();
    let undisturbed = starlings(here.path(), &shorter).report();
    assert_eq!(report["digest"], undisturbed["digest"]);
}
