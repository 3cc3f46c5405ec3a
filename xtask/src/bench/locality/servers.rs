//! An nginx with a small page cache and a slow disk of its own.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::setting::{CACHE_BYTES, DISK_BYTES_PER_S, FILE_BYTES, FILES, SERVERS};
use crate::bench::real::pool::free_address;

/// One server. Ends with its process and its control groups when dropped.
pub struct Server {
    pub address: SocketAddr,
    config: PathBuf,
    groups: Vec<PathBuf>,
    process: Option<Child>,
}

/// A copy of all files for each server.
pub fn write_files(folder: &Path) -> Result<()> {
    for server in 0..SERVERS {
        let root = root(folder, server);
        fs::create_dir_all(&root)?;
        for file in 0..FILES {
            fs::write(root.join(format!("f{file}")), vec![b'a' + (file % 26) as u8; FILE_BYTES])?;
        }
    }
    Ok(())
}

fn root(folder: &Path, server: usize) -> PathBuf {
    folder.join(format!("files-{server}"))
}

impl Server {
    /// Starts one with an empty cache.
    pub fn new(folder: &Path, number: usize) -> Result<Self> {
        let address = free_address()?;
        let name = format!("weal-locality-{number}-{}", std::process::id());
        let config = folder.join(format!("{number}.conf"));
        let text = format!(
            "daemon off; worker_processes 2; pid {folder}/{number}.pid; error_log /dev/null; user root;
             events {{ worker_connections 1024; }}
             http {{ access_log off; keepalive_requests 100000000; sendfile on; server {{ listen {address} backlog=1024; root {root}; }} }}",
            folder = folder.display(),
            root = root(folder, number).display(),
        );
        fs::write(&config, text)?;
        let mut server = Self { address, config, groups: groups(&name, folder)?, process: None };
        server.start()?;
        Ok(server)
    }

    pub fn start(&mut self) -> Result<()> {
        let enter: String = self.groups.iter().map(|group| format!("echo $$ > {}/cgroup.procs; ", group.display())).collect();
        let script = format!("{enter}exec nginx -c {}", self.config.display());
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().context("cannot start nginx")?);
        wait_for(self.address)
    }

    /// As a crash: all its processes at once. What was cached is gone too, as with the machine that it stands for.
    pub fn kill(&mut self) -> Result<()> {
        for pid in self.pids()? {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        if let Some(mut process) = self.process.take() {
            process.wait()?;
        }
        for file in ["memory.force_empty", "memory.reclaim"] {
            let file = self.groups[0].join(file);
            if file.exists() {
                // Less than all may be there to be given back.
                let _ = fs::write(file, CACHE_BYTES.to_string());
            }
        }
        Ok(())
    }

    /// Bytes that its processes have read from the disk since they were started.
    pub fn bytes_read(&self) -> Result<f64> {
        let mut sum = 0.0;
        for pid in self.pids()? {
            let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
            sum += line.and_then(|bytes| bytes.parse::<f64>().ok()).unwrap_or(0.0);
        }
        Ok(sum)
    }

    fn pids(&self) -> Result<Vec<u32>> {
        let text = fs::read_to_string(self.groups[0].join("cgroup.procs"))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
        for group in &self.groups {
            let _ = fs::remove_dir(group);
        }
    }
}

/// Control groups of one server: bounded memory and a slow disk, in the version that this machine has.
fn groups(name: &str, folder: &Path) -> Result<Vec<PathBuf>> {
    let top = Path::new("/sys/fs/cgroup");
    let device = fs::metadata(folder)?.dev();
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let set = |group: &Path, file: &str, value: String| {
        fs::write(group.join(file), &value).with_context(|| format!("cannot write `{value}` to {}/{file}", group.display()))
    };
    if top.join("memory").exists() {
        let [memory, disk] = ["memory", "blkio"].map(|controller| top.join(controller).join(name));
        fs::create_dir_all(&memory)?;
        fs::create_dir_all(&disk)?;
        set(&memory, "memory.limit_in_bytes", CACHE_BYTES.to_string())?;
        set(&disk, "blkio.throttle.read_bps_device", format!("{device} {DISK_BYTES_PER_S}"))?;
        return Ok(vec![memory, disk]);
    }
    let group = top.join(name);
    fs::create_dir_all(&group)?;
    set(&group, "memory.max", CACHE_BYTES.to_string())?;
    set(&group, "io.max", format!("{device} rbps={DISK_BYTES_PER_S}"))?;
    Ok(vec![group])
}

/// Waits until something answers there.
pub fn wait_for(address: SocketAddr) -> Result<()> {
    let begun = Instant::now();
    let answers = || -> Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"GET /f0 HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        Ok(&status == b"HTTP/1.1 200")
    };
    while !answers().unwrap_or(false) {
        ensure!(begun.elapsed() < Duration::from_secs(20), "nothing answers at {address}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
