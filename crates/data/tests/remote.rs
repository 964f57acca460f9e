//! Data at addresses, from a real S3-compatible server: `moto_server` (`pip install 'moto[s3]' flask flask-cors`), where it is installed;
//! without it these tests say so and pass.

#![cfg(feature = "remote")]
#![expect(clippy::unwrap_used, reason = "a test's own helpers may fail loudly, as its tests do")]

use starlings_core::{Blame, Shard};
use starlings_data::remote::{Bucket, Put};
use starlings_data::{DataSpec, Encoding, LabelNeed, load, load_all, remote, survey};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

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
                remote::configure([
                    ("AWS_ACCESS_KEY_ID".to_string(), "testing".to_string()),
                    ("AWS_SECRET_ACCESS_KEY".to_string(), "very-secret".to_string()),
                    ("AWS_REGION".to_string(), "us-east-1".to_string()),
                    ("AWS_ENDPOINT".to_string(), format!("http://{address}")),
                    ("AWS_ALLOW_HTTP".to_string(), "true".to_string()),
                ]);
                return Some(server);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the server did not start within a minute");
    }

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
}

fn rows(count: u32) -> String {
    let row = |row: u32| format!("{row},{},{}\n", row % 13, ["no", "yes"][(row % 2) as usize]);
    "x,z,class\n".to_string() + &(0..count).map(row).collect::<String>()
}

/// The store, or a word that there is none.
fn store() -> Option<Server> {
    let server = Server::start();
    if server.is_none() {
        #[expect(clippy::print_stderr, reason = "a test that did not run says so")]
        {
            eprintln!(
                "skipped: moto_server is not installed (pip install 'moto[s3]' flask flask-cors)"
            );
        }
    }
    server
}

#[test]
fn exactly_one_of_two_writers_wins() {
    let Some(server) = store() else { return };
    server.put("vault", b"");
    let bucket = Bucket::of("s3://vault/jobs").unwrap();
    let kind = |result: std::io::Result<String>| result.unwrap_err().kind();
    let first = bucket.put("jobs/a/manifest", b"one", &Put::Absent).unwrap();
    assert_eq!(
        kind(bucket.put("jobs/a/manifest", b"two", &Put::Absent)),
        std::io::ErrorKind::AlreadyExists
    );
    assert_eq!(bucket.get("jobs/a/manifest").unwrap(), (b"one".to_vec(), first.clone()));
    let second = bucket.put("jobs/a/manifest", b"three", &Put::Is(first.clone())).unwrap();
    assert_ne!(first, second);
    assert_eq!(
        kind(bucket.put("jobs/a/manifest", b"four", &Put::Is(first))),
        std::io::ErrorKind::AlreadyExists
    );
    assert_eq!(bucket.get("jobs/a/manifest").unwrap().0, b"three");
    bucket.put("jobs/b/model", b"m", &Put::Always).unwrap();
    bucket.put("jobs/b/model", b"n", &Put::Always).unwrap();
    let mut names = bucket.list("jobs").unwrap();
    names.sort();
    assert_eq!(names, ["jobs/a/manifest", "jobs/b/model"]);
    bucket.delete("jobs/b/model").unwrap();
    bucket.delete("jobs/b/model").unwrap();
    let gone = bucket.get("jobs/b/model").unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
    assert!(gone.to_string().contains("s3://vault/jobs/b/model"), "{gone}");
    assert!(!gone.to_string().contains("very-secret"));
}

/// A web server with one file. It closes the first connections without an answer, and knows ranges or not.
fn web(content: String, drops: u32, ranges: bool) -> (SocketAddr, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicU32::new(0)));
    let count = asked.clone();
    let serving = move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = head_of(&mut stream);
            if request.is_empty() || count.fetch_add(1, Ordering::Relaxed) < drops {
                continue;
            }
            let range = request.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                let value = value.trim().strip_prefix("bytes=")?;
                let (from, to) = value.split_once('-')?;
                let bounds = (from.parse::<usize>().ok()?, to.parse::<usize>().ok()? + 1);
                name.eq_ignore_ascii_case("range").then_some(bounds)
            });
            let (status, (from, to)) = match range.filter(|_| ranges) {
                Some(range) => ("206 Partial Content", range),
                None => ("200 OK", (0, content.len())),
            };
            let body = if request.starts_with("HEAD") { "" } else { &content[from..to] };
            let length = to - from;
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
                 Content-Range: bytes {from}-{}/{}\r\nConnection: close\r\n\r\n{body}",
                to.saturating_sub(1),
                content.len()
            );
        }
    };
    std::thread::Builder::new().name("web".to_string()).spawn(serving).unwrap();
    (address, asked)
}

fn head_of(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

#[test]
fn dropped_connections_are_made_again_and_a_server_without_ranges_is_named() {
    let text = rows(500_000);
    assert!(text.len() > 5 << 20, "must be more than one range");
    let (address, asked) = web(text.clone(), 2, true);
    let spec = DataSpec::new(format!("http://{address}/a.csv"));
    let (found, holding) = load_all(&spec, Encoding::OneHot, LabelNeed::Class, 4).unwrap();
    assert_eq!((found.rows, holding.table.rows()), (500_000, 500_000));
    assert!(asked.load(Ordering::Relaxed) > 4);
    let (address, _) = web(text, 0, false);
    let spec = DataSpec::new(format!("http://{address}/a.csv"));
    let fault = survey(&spec, Encoding::OneHot, LabelNeed::Class).unwrap_err().to_string();
    assert!(fault.contains(&format!("http://{address}/a.csv")), "{fault}");
}

#[cfg(feature = "hdfs")]
#[test]
fn a_name_node_that_is_not_there_is_named() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let spec = DataSpec::new(format!("hdfs://{nobody}/folder/a.csv"));
    let fault = survey(&spec, Encoding::OneHot, LabelNeed::Class).unwrap_err().to_string();
    assert!(fault.contains(&format!("no name node answers at hdfs://{nobody}")), "{fault}");
}

#[test]
fn objects_are_read_in_ranges_as_files_are() {
    let Some(server) = store() else { return };
    let folder = tempfile::tempdir().unwrap();
    let text = rows(600_000);
    assert!(text.len() > 5 << 20, "must be more than one range");
    let path = folder.path().join("a.csv");
    std::fs::write(&path, &text).unwrap();
    let all = |spec: &DataSpec| load_all(spec, Encoding::OneHot, LabelNeed::Class, 4).unwrap();
    let (local, table) = all(&DataSpec::new(path.to_string_lossy()));
    server.put("data", b"");
    server.put("data/folder/a.csv", text.as_bytes());
    server.put("data/folder/_SUCCESS", b"");
    let places = [
        "s3://data/folder/a.csv".to_string(),
        "s3://data/folder/".to_string(),
        "s3://data/folder/*.csv".to_string(),
    ];
    for place in places {
        let spec = DataSpec::new(place);
        let (found, loaded) = all(&spec);
        assert_eq!((&found.schema, &found.digest), (&local.schema, &local.digest));
        assert_eq!(loaded.table, table.table);
        let part = load(&spec, &found, &[Shard(2)], 4).unwrap();
        assert_eq!(part.table.rows(), 150_000);
    }
    let parquet = folder.path().join("a.parquet");
    write_parquet(&parquet);
    server.put("data/a.parquet", &std::fs::read(&parquet).unwrap());
    let here = all(&DataSpec::new(parquet.to_string_lossy())).1;
    assert_eq!(all(&DataSpec::new("s3://data/a.parquet")).1.table, here.table);

    for (place, words) in [
        ("s3://data/b.csv", "there is no file s3://data/b.csv"),
        ("s3://data/none/", "there are no files"),
        ("http://name:word@host/a.csv", "carries a name or a password"),
        ("https://host", "names no file"),
    ] {
        let fault = survey(&DataSpec::new(place), Encoding::OneHot, LabelNeed::Class).unwrap_err();
        assert_eq!(fault.blame(), Blame::Caller, "{fault}");
        assert!(fault.to_string().contains(words), "{fault}");
        assert!(!fault.to_string().contains("very-secret"));
    }
}

fn write_parquet(path: &std::path::Path) {
    use parquet::data_type::{DoubleType, Int64Type};
    use parquet::file::writer::SerializedFileWriter;
    let text = "message rows { required double x; required int64 class; }";
    let schema = std::sync::Arc::new(parquet::schema::parser::parse_message_type(text).unwrap());
    let file = std::fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let values: Vec<f64> = (0..1000).map(f64::from).collect();
    let classes: Vec<i64> = (0..1000).map(|row| row % 3).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<DoubleType>().write_batch(&values, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&classes, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}
