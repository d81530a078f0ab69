//! A connection's bytes through TLS, by rustls and without I/O: what server and client do alike once
//! either has its session.

use std::io::{Read, Write};

use rustls::{ConnectionCommon, SideData};

/// Why there is no more of a TLS session.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the peer does not speak TLS as it should")]
    Peer { source: rustls::Error },
    #[error("the peer has ended its TLS session")]
    Ended,
}

/// Takes what was received and appends what it says to `plain`. After an error there may still be
/// something to send.
///
/// # Errors
/// When it is no TLS, or the session has ended; what came before the end is in `plain`.
pub fn decrypt<S: SideData>(
    session: &mut ConnectionCommon<S>,
    mut received: &[u8],
    plain: &mut Vec<u8>,
) -> Result<(), TlsError> {
    while !received.is_empty() {
        // Reading from a slice cannot fail; what is read is bounded by a record's length.
        let taken = session.read_tls(&mut received).map_err(|_| TlsError::Ended)?;
        let state = session.process_new_packets().map_err(|source| TlsError::Peer { source })?;
        let (length, ended) = (state.plaintext_bytes_to_read(), state.peer_has_closed());
        let start = plain.len();
        plain.resize(start + length, 0);
        session.reader().read_exact(&mut plain[start..]).map_err(|_| TlsError::Ended)?;
        if ended || taken == 0 {
            return Err(TlsError::Ended);
        }
    }
    Ok(())
}

/// Appends the records that hold `plain`, and whatever else is to be sent, to `out`.
pub fn encrypt<S: SideData>(
    session: &mut ConnectionCommon<S>,
    mut plain: &[u8],
    out: &mut Vec<u8>,
) {
    loop {
        // The session takes a bounded part at a time; neither can fail in memory.
        let taken = session.writer().write(plain).unwrap_or(0);
        plain = &plain[taken..];
        while session.wants_write() && session.write_tls(out).is_ok_and(|written| written > 0) {}
        if plain.is_empty() || taken == 0 {
            return;
        }
    }
}
