//! Files of the Hadoop distributed file system, through `hdfs-native`: no Java, no libhdfs. The name node's address is in
//! the address, or is a name service of `core-site.xml` and `hdfs-site.xml` (found by `HADOOP_CONF_DIR`).

use super::{Files, Refusal, runtime, wait};
use hdfs_native::{Client, ClientBuilder, HdfsError};
use starlings_core::{Fault, Result};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::time::Duration;
use tokio::runtime::Runtime;

/// What the name node calls a refusal for want of rights.
const FORBIDDEN: &str = "AccessControlException";
const ABSENT: &str = "FileNotFoundException";
/// How long a name node may take to open its door.
const KNOCK: Duration = Duration::from_secs(10);

pub(super) struct Hadoop {
    client: Client,
    runtime: Runtime,
}

impl Hadoop {
    /// The file system of `hdfs://namenode:9000`.
    pub(super) fn at(root: &str) -> Result<Hadoop> {
        knock(root)?;
        let runtime = runtime()?;
        let wrong = |error| {
            Fault::caller(format!("{root} cannot be reached")).caused_by(error).hint(
                "give the name node's port, or a name service of the files in HADOOP_CONF_DIR",
            )
        };
        let builder = ClientBuilder::new().with_url(root);
        let client = builder.with_io_runtime(runtime.handle().clone()).build().map_err(wrong)?;
        Ok(Hadoop { client, runtime })
    }

    fn ask<T>(&self, answer: impl Future<Output = hdfs_native::Result<T>>) -> Result<T, Refusal> {
        let late = || Err(Refusal::Other("no answer in time".to_string()));
        wait(&self.runtime, answer).map_or_else(late, |answer| answer.map_err(refusal))
    }
}

impl Files for Hadoop {
    fn size(&self, key: &str) -> Result<u64, Refusal> {
        let found = self.ask(self.client.get_file_info(&absolute(key)))?;
        Ok(found.length as u64)
    }

    fn range(&self, key: &str, range: Range<u64>) -> Result<Vec<u8>, Refusal> {
        let path = absolute(key);
        let (from, length) = (range.start as usize, (range.end - range.start) as usize);
        let bytes = self.ask(async {
            let reader = self.client.read(&path).await?;
            reader.read_range(from, length).await
        })?;
        Ok(bytes.to_vec())
    }

    fn below(&self, folder: &str) -> Result<Vec<(String, u64)>, Refusal> {
        let found = self.ask(self.client.list_status(&absolute(folder), false))?;
        let files = found.into_iter().filter(|it| !it.isdir);
        let key = |path: String| path.trim_start_matches('/').to_string();
        Ok(files.map(|it| (key(it.path), it.length as u64)).collect())
    }
}

/// Whether anybody is there at all: the client calls again for minutes where nobody answers. A name service has no port, and
/// may have several name nodes.
fn knock(root: &str) -> Result<()> {
    let host = root.trim_start_matches("hdfs://");
    if !host.contains(':') {
        return Ok(());
    }
    let nobody = |error: std::io::Error| {
        Fault::caller(format!("no name node answers at {root}"))
            .caused_by(error)
            .hint("see that host and port are right and that it runs")
    };
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in host.to_socket_addrs().map_err(nobody)? {
        match TcpStream::connect_timeout(&address, KNOCK) {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(nobody(last))
}

fn absolute(key: &str) -> String {
    format!("/{key}")
}

fn refusal(error: HdfsError) -> Refusal {
    match error {
        HdfsError::FileNotFound(_) => Refusal::Absent,
        HdfsError::RPCError(class, _) | HdfsError::FatalRPCError(class, _)
            if class.contains(ABSENT) =>
        {
            Refusal::Absent
        }
        HdfsError::RPCError(class, _) | HdfsError::FatalRPCError(class, _)
            if class.contains(FORBIDDEN) =>
        {
            Refusal::Forbidden
        }
        HdfsError::SASLError(_) | HdfsError::NoSASLMechanism => Refusal::Forbidden,
        error => Refusal::Other(error.to_string()),
    }
}
