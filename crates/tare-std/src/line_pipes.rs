//! The pipes to an agent: a process, here or on another host, that takes orders as lines on its
//! standard input and answers with lines on its standard output.
//!
//! A thread reads the answers as they arrive, and another keeps what it writes to standard error,
//! which explains its end. No call here waits for the agent, except for the rest of that.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The last bytes of standard error that are kept.
const SAID_BYTES: usize = 2_000;
/// How long to wait for the end of standard error.
const LAST_WORDS: Duration = Duration::from_millis(200);

type Input = Mutex<Option<Box<dyn Write + Send>>>;

/// The pipes to an agent. Dropping them closes its standard input.
pub struct LinePipes {
    input: Arc<Input>,
    said: Arc<Said>,
}

/// What an agent has written to standard error.
#[derive(Debug, Default)]
struct Said {
    text: Mutex<String>,
    /// The pipe has ended.
    ended: Mutex<bool>,
    changed: Condvar,
}

impl LinePipes {
    /// Takes the pipes of an agent: its standard input, output and error. `answer` gets each line
    /// of its output in a thread, `None` at its end, and returns whether it wants more.
    pub fn new(
        input: Box<dyn Write + Send>,
        output: impl Read + Send + 'static,
        errors: impl Read + Send + 'static,
        mut answer: impl FnMut(Option<String>) -> bool + Send + 'static,
    ) -> Self {
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if !answer(Some(line)) {
                    return;
                }
            }
            answer(None);
        });
        let said = Arc::new(Said::default());
        let kept = Arc::clone(&said);
        thread::spawn(move || kept.keep(errors));
        Self { input: Arc::new(Mutex::new(Some(input))), said }
    }

    /// Sends a line.
    ///
    /// # Errors
    /// If the agent has closed its input.
    pub fn send(&self, line: &str) -> io::Result<()> {
        send(&self.input, line)
    }

    /// Sends a line again and again, as a sign of life, until this is dropped or the agent is gone.
    pub fn keep_alive(&self, line: &'static str, every: Duration) {
        let input = Arc::downgrade(&self.input);
        thread::spawn(move || {
            loop {
                thread::sleep(every);
                // The next order notices a broken pipe.
                let sent = input.upgrade().map(|input| send(&input, line));
                if !matches!(sent, Some(Ok(()))) {
                    return;
                }
            }
        });
    }

    /// Returns the last lines that the agent wrote to standard error. Waits a little for those that
    /// are on their way, as an agent that ends may have said why.
    pub fn said(&self) -> String {
        let ended = lock(&self.said.ended);
        drop(self.said.changed.wait_timeout_while(ended, LAST_WORDS, |ended| !*ended));
        lock(&self.said.text).trim().to_string()
    }

    /// Closes the agent's standard input.
    pub fn close(&self) {
        drop(lock(&self.input).take());
    }
}

impl fmt::Debug for LinePipes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinePipes").field("said", &self.said).finish_non_exhaustive()
    }
}

impl Drop for LinePipes {
    fn drop(&mut self) {
        self.close();
    }
}

impl Said {
    fn keep(&self, errors: impl Read) {
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            let mut text = lock(&self.text);
            text.push_str(line.trim());
            text.push('\n');
            let excess = text.len().saturating_sub(SAID_BYTES);
            let cut = (excess..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.drain(..cut);
        }
        *lock(&self.ended) = true;
        self.changed.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn send(input: &Input, line: &str) -> io::Result<()> {
    let mut input = lock(input);
    let input = input.as_mut().ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
    // One write, so that a line arrives as a whole.
    input.write_all(format!("{line}\n").as_bytes())?;
    input.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::sync::mpsc;

    #[test]
    fn lines_pass_and_last_words_are_kept() {
        let script = "read a; echo \"got $a\"; read b; echo \"why $b\" >&2";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, answers) = mpsc::channel();
        let pipes = LinePipes::new(
            Box::new(child.stdin.take().unwrap()),
            child.stdout.take().unwrap(),
            child.stderr.take().unwrap(),
            move |line| sender.send(line).is_ok(),
        );
        pipes.send("one").unwrap();
        let limit = Duration::from_secs(60);
        assert_eq!(answers.recv_timeout(limit).unwrap().as_deref(), Some("got one"));
        pipes.keep_alive("two", Duration::from_millis(1));
        assert_eq!(answers.recv_timeout(limit).unwrap(), None);
        assert!(child.wait().unwrap().success());
        assert_eq!(pipes.said(), "why two");
        pipes.close();
        assert!(pipes.send("three").is_err());
    }
}
