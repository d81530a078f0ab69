//! The HTTP server: one thread, with limits on connections, sizes and times.

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

use super::page::SharedPage;

/// Most connections at once; a further one is closed unread.
const CONNECTIONS: usize = 16;
/// Time to receive the head of a request.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a whole connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of the head of a request.
const HEAD_BYTES: usize = 16 << 10;
const NICE: i32 = 19;

/// A server that runs until it is dropped.
pub(super) struct Server {
    page: Arc<SharedPage>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(
        listener: &TcpListener,
        page: SharedPage,
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
        let page = Arc::new(page);
        let (shared, cpus) = (Arc::clone(&page), cpus.clone());
        let serve = move || {
            lower_priority(&cpus);
            runtime.block_on(async {
                let accept = pin!(accept(listener, address, shared));
                select(accept, stopped).await;
            });
        };
        let thread = std::thread::Builder::new()
            .name("tare-serve".into())
            .spawn(serve)
            .context("cannot start the thread that serves the page")?;
        Ok(Server { page, address, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn page(&self) -> &SharedPage {
        &self.page
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // Sending fails only if the thread has ended already.
            let _sent = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _joined = thread.join();
        }
    }
}

/// Gives the calling thread the lowest priority, and pins it to these CPUs if there are any.
/// Failures are ignored: the page is served all the same.
pub(super) fn lower_priority(cpus: &CpuSet) {
    // On Linux the nice value is per thread, and 0 means the calling thread: setpriority(2).
    let _nice = rustix::process::setpriority_process(None, NICE);
    if !cpus.is_empty() {
        let _pinned = tare_host::process::pin_this_thread(cpus);
    }
}

async fn accept(listener: TcpListener, own: SocketAddr, page: Arc<SharedPage>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Most likely out of descriptors; other connections may close some.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else { continue };
        let page = Arc::clone(&page);
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let response = respond(&page, own, &request);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .keep_alive(false)
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_TIMEOUT)
                .max_buf_size(HEAD_BYTES)
                .serve_connection(TokioIo::new(stream), service);
            // A client that disconnects or is too slow gets no response.
            let _ended = tokio::time::timeout(CONNECTION_TIMEOUT, pin!(connection)).await;
            drop(slot);
        });
    }
}

fn respond(
    page: &SharedPage,
    own: SocketAddr,
    request: &Request<Incoming>,
) -> Response<Full<Bytes>> {
    page.respond(own, request.method(), request.uri().path(), request.headers()).map(Full::new)
}
