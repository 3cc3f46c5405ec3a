//! A gateway in a process of its own.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::h2::{request, within};

/// A gateway in a process of its own, so that its memory can be told from the test's.
pub struct Apart {
    process: std::process::Child,
    pub address: SocketAddr,
}

impl Apart {
    /// Without limits, before the instance at `instance`.
    pub async fn start(instance: SocketAddr) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let program = std::env::current_exe().unwrap().parent().unwrap().with_file_name("examples/gateway-bench");
        let arguments = [free.to_string(), instance.to_string(), "0".to_owned(), "2".to_owned()];
        if !program.exists() {
            let built =
                Command::new(env!("CARGO")).args(["build", "--quiet", "--package", "weal-gateway", "--examples"]).status();
            assert!(built.unwrap().success(), "cannot build gateway-bench");
        }
        let process = Command::new(program).args(arguments).spawn().unwrap();
        let gateway = Self { process, address: free };
        let served = async {
            while gateway.first_status().await.is_none_or(|status| status != 200) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within("it serves", served).await;
        gateway
    }

    pub async fn first_status(&self) -> Option<u16> {
        let stream = TcpStream::connect(self.address).await.ok()?;
        let (mut client, connection) = h2::client::handshake(stream).await.ok()?;
        tokio::spawn(connection);
        let (response, _) = client.send_request(request("GET", "http://a/").body(()).unwrap(), true).ok()?;
        Some(response.await.ok()?.status().as_u16())
    }

    /// The most memory that it has had, in KiB.
    pub fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// The same once it grows no more.
    pub async fn settled_peak_kib(&self) -> u64 {
        let mut last = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = self.peak_kib();
            if now == last {
                return now;
            }
            last = now;
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
