//! One connection: requests one after another, also several at once, and their answers in the same order.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::commands::{Session, error};
use super::request::{LONGEST, split_off};
use crate::checks::Checks;
use crate::listen::{Bounds, Connection, Ending, accept};

/// How many requests are answered before their answers are sent. A client that reads no answers is not answered further.
const TOGETHER: usize = 128;

/// Answers until the server ends.
pub(crate) async fn listen(listener: TcpListener, checks: Arc<Checks>, bounds: Bounds, ending: Ending) {
    let (of_end, idle) = (ending.clone(), bounds.idle);
    let each = move |stream, _| serve(stream, checks.clone(), idle, of_end.clone());
    accept(listener, bounds, ending, each).await;
}

/// Answers until the client leaves, is silent for too long, sends what is no request, or the server ends.
async fn serve(mut stream: Connection, checks: Arc<Checks>, idle: Duration, mut ending: Ending) {
    let mut session = Session::new(checks);
    let (mut input, mut output) = (BytesMut::new(), Vec::new());
    loop {
        let is_open = answer_all(&mut session, &mut input, &mut output).await;
        // One that does not read its answers keeps nothing alive either.
        if !output.is_empty() && !matches!(timeout(idle, stream.write_all(&output)).await, Ok(Ok(()))) {
            return;
        }
        output.clear();
        if !is_open {
            let _ = stream.shutdown().await;
            return;
        }
        if has_request(&input) {
            continue;
        }
        input.reserve(4 * 1_024);
        let read = tokio::select! {
            biased;
            read = timeout(idle, stream.read_buf(&mut input)) => read,
            () = ending.begins() => return,
        };
        if !matches!(read, Ok(Ok(1..))) {
            return;
        }
    }
}

/// Answers requests that are complete, up to a number: together, so that they share round trips to the store. Returns whether
/// the connection goes on.
async fn answer_all(session: &mut Session, input: &mut BytesMut, output: &mut Vec<u8>) -> bool {
    let (mut begun, mut length, mut problem) = (Vec::new(), 0, None);
    while begun.len() < TOGETHER && !session.has_quit {
        match split_off(&input[length..]) {
            Ok(Some((arguments, more))) => {
                begun.push(session.begin(&arguments));
                length += more;
            }
            Ok(None) => break,
            Err(found) => {
                problem = Some(found);
                break;
            }
        }
    }
    let session = &*session;
    match begun.len() {
        1 => output.extend(session.finish(begun.remove(0)).await),
        _ => {
            let answers = join_all(begun.into_iter().map(|begun| session.finish(begun))).await;
            answers.iter().for_each(|answer| output.extend(answer));
        }
    }
    input.advance(length);
    if let Some(problem) = problem {
        error(output, &format!("Protocol error: {problem}"));
    }
    problem.is_none() && !session.has_quit
}

/// Whether there is a request left to answer, because there were enough answers.
fn has_request(input: &BytesMut) -> bool {
    !input.is_empty() && (input.len() > LONGEST || !matches!(split_off(input), Ok(None)))
}
