//! Keep-alive connections to one server.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A request as it goes over the wire.
pub(crate) type Message = hyper::Request<Full<Bytes>>;

/// Idle connections to one server, the most recently used first.
#[derive(Debug)]
pub(crate) struct Connections {
    address: SocketAddr,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Connections {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, idle: Mutex::new(Vec::new()) }
    }

    /// Sends a request and reads the whole answer; returns its status. A kept connection that the server closed
    /// meanwhile is replaced once.
    pub async fn exchange(&self, message: Message) -> io::Result<u16> {
        let Some(mut kept) = self.take_idle() else { return self.exchange_anew(message).await };
        if kept.ready().await.is_err() {
            return self.exchange_anew(message).await;
        }
        match kept.try_send_request(message).await {
            Ok(response) => self.finish(kept, response).await,
            Err(mut failed) => match failed.take_message() {
                Some(unsent) => self.exchange_anew(unsent).await,
                None => Err(io::Error::other(failed.into_error())),
            },
        }
    }

    async fn exchange_anew(&self, message: Message) -> io::Result<u16> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(async move {
            // Its errors come back with the request.
            let _ = connection.await;
        });
        let response = sender.send_request(message).await.map_err(io::Error::other)?;
        self.finish(sender, response).await
    }

    async fn finish(
        &self,
        sender: SendRequest<Full<Bytes>>,
        response: hyper::Response<hyper::body::Incoming>,
    ) -> io::Result<u16> {
        let status = response.status().as_u16();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            frame.map_err(io::Error::other)?;
        }
        if !sender.is_closed() {
            self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(sender);
        }
        Ok(status)
    }

    fn take_idle(&self) -> Option<SendRequest<Full<Bytes>>> {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop()
    }
}
