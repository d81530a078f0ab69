//! The thread that answers, with its limits.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::select;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tare_std::cpus::CpuSet;
use tokio::sync::{Semaphore, oneshot};

use super::answer::Desk;

/// Connections at once; one more is closed unheard.
const CONNECTIONS: usize = 16;
/// A request must have come by then.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(5);
/// And its answer must have been taken by then.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a request's head.
const HEAD_BYTES: usize = 16 << 10;
const NICE: i32 = 19;

/// A server that runs until it is dropped.
pub(super) struct Server {
    desk: Arc<Desk>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(
        listener: &TcpListener,
        desk: Desk,
        cpus: &CpuSet,
    ) -> anyhow::Result<Server> {
        let listener = listener.try_clone().context("cannot copy the page's socket")?;
        listener.set_nonblocking(true).context("cannot prepare the page's socket")?;
        let address = listener.local_addr().context("cannot read the page's address")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the server of the page")?;
        let (stop, stopped) = oneshot::channel();
        let desk = Arc::new(desk);
        let (shared, cpus) = (Arc::clone(&desk), cpus.clone());
        let serve = move || {
            step_back(&cpus);
            runtime.block_on(async {
                let accept = pin!(accept(listener, address, shared));
                select(accept, stopped).await;
            });
        };
        let thread = std::thread::Builder::new()
            .name("tare-serve".into())
            .spawn(serve)
            .context("cannot start the thread that serves the page")?;
        Ok(Server { desk, address, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn desk(&self) -> &Desk {
        &self.desk
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Fails only where the thread has ended already.
            let _sent = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _joined = thread.join();
        }
    }
}

/// Makes the calling thread give way to everybody, on these CPUs where there are any. A thread that
/// cannot step back serves all the same.
pub(super) fn step_back(cpus: &CpuSet) {
    // On Linux the nice value belongs to a thread, and 0 names the calling one: setpriority(2).
    let _nice = rustix::process::setpriority_process(None, NICE);
    if !cpus.is_empty() {
        let _pinned = tare_host::process::pin_this_thread(cpus);
    }
}

async fn accept(listener: TcpListener, own: SocketAddr, desk: Arc<Desk>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: others may close some.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else { continue };
        let desk = Arc::clone(&desk);
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let answer = answer(&desk, own, &request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .keep_alive(false)
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_TIMEOUT)
                .max_buf_size(HEAD_BYTES)
                .serve_connection(TokioIo::new(stream), service);
            // Who breaks off or is too slow gets no more.
            let _ended = tokio::time::timeout(CONNECTION_TIMEOUT, pin!(connection)).await;
            drop(place);
        });
    }
}

fn answer(desk: &Desk, own: SocketAddr, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    desk.answer(own, request.method(), request.uri().path(), request.headers()).map(Full::new)
}
