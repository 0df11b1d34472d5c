//! Dialogue with a client until its authentication is decided (nginx: `ngx_mail_read_command`, `ngx_mail_auth`,
//! `ngx_mail_auth_sleep_handler`).

use crate::engine::{SessionClosed, send_bytes, timed_out};
use crate::handshake;
use crate::login::{call_failed, shown_text};
use crate::plan::{AuthFault, AuthResult, PassEnd, PassPlan};
use crate::protocol::{Dialogue, DialogueContext, DialogueStep, MailReply, Next, NextStep, Starttls};
use crate::session::MailSession;
use base::clock::Instant;
use observe::Severity;
use runtime::time::{sleep_for, timeout_at};
use std::future::poll_fn;
use std::io::ErrorKind;
use std::task::{Poll, ready};
use std::time::Duration;
use transport::Stream;
use variables::Session;

const READ_BYTES: usize = 512;
/// Maximum pause that an authentication server can request (`Auth-Wait`).
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs the dialogue until the session ends. `until`: its deadline.
pub async fn run_dialogue(s: &mut MailSession, stream: &mut Stream, mut until: Instant) -> Result<(), SessionClosed> {
    let plan = s.plan.clone();
    let server = plan.srv(s.server);
    let mut dialogue = server.protocol.dialogue();
    let bytes_max = server.protocol.command_bytes_max();
    let (mut input, mut errors) = (Vec::new(), 0);
    s.doing = "in auth state";
    loop {
        match step(s, stream, &mut *dialogue, &mut input, bytes_max) {
            NextStep::More if input.len() >= bytes_max => {
                let command = input.get(..bytes_max).unwrap_or(&input);
                s.log(Severity::Info, format_args!("client sent too long command \"{}\"", shown_text(command)));
                return send_bytes(s, stream, &dialogue.invalid()).await;
            }
            NextStep::More => read(s, stream, &mut input, bytes_max, until).await?,
            NextStep::Reply(MailReply { bytes, mut next, invalid }) => {
                errors += u64::from(invalid);
                if invalid && errors >= server.max_errors {
                    s.log(Severity::Info, format_args!("client sent too many invalid commands"));
                    next = Next::Quit;
                }
                send_bytes(s, stream, &bytes).await?;
                match next {
                    Next::Go => {}
                    Next::Quit => return Ok(()),
                    Next::StartTls => {
                        // Discards plaintext after the command (STARTTLS injection).
                        input = Vec::new();
                        s.starttls = true;
                        Box::pin(handshake::make_handshake(s, stream)).await?;
                        s.doing = "in auth state";
                        dialogue.restart(&mut s.login, true);
                    }
                }
            }
            NextStep::Authenticate => {
                Box::pin(authenticate(s, stream, &mut *dialogue, &mut input)).await?;
                until = runtime::time::after(server.timeout);
                s.doing = "in auth state";
                dialogue.restart(&mut s.login, false);
            }
        }
    }
}

/// Hands at most `bytes_max` bytes to the dialogue: a TLS record may contain more.
fn step(
    s: &mut MailSession,
    stream: &Stream,
    dialogue: &mut dyn Dialogue,
    input: &mut Vec<u8>,
    bytes_max: usize,
) -> NextStep {
    let command = input.get(..bytes_max).unwrap_or(input);
    let starttls = if stream.is_secure() { Starttls::Off } else { s.srv().starttls };
    let mut notes = Vec::new();
    let DialogueStep { consumed, then } =
        dialogue.step(command, &mut DialogueContext { login: &mut s.login, starttls, notes: &mut notes });
    for note in notes {
        s.log(Severity::Info, format_args!("{note}"));
    }
    input.drain(..consumed.min(input.len()));
    then
}

async fn read(
    s: &MailSession,
    stream: &Stream,
    input: &mut Vec<u8>,
    bytes_max: usize,
    until: Instant,
) -> Result<(), SessionClosed> {
    // A silent client costs no buffer.
    let reading = poll_fn(|cx| {
        loop {
            ready!(stream.poll_readable(cx))?;
            input.reserve_exact(bytes_max.saturating_sub(input.len()).clamp(1, READ_BYTES));
            match stream.try_read_buf(input) {
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => input.shrink_to_fit(),
                done => return Poll::Ready(done),
            }
        }
    });
    match timeout_at(until, reading).await {
        Ok(Ok(1..)) => Ok(()),
        Ok(Ok(0)) => Err(SessionClosed),
        Ok(Err(e)) => {
            s.log(Severity::Info, format_args!("{}", call_failed("recv", &e)));
            Err(SessionClosed)
        }
        Err(_) => Err(timed_out(s)),
    }
}

/// Asks the authentication server, without reading from the client, and acts on the result. An error ends the session.
async fn authenticate(
    s: &mut MailSession,
    stream: &Stream,
    dialogue: &mut dyn Dialogue,
    input: &mut Vec<u8>,
) -> Result<(), SessionClosed> {
    let plan = s.plan.clone();
    let server = plan.srv(s.server);
    s.login.attempts += 1;
    s.doing = "in http auth state";
    let internal_error = server.protocol.internal_error().as_bytes();
    loop {
        match server.authenticator.ask(s).await {
            Ok(AuthResult::Refused { refusal, wait, user }) => {
                s.login.user = user.unwrap_or(std::mem::take(&mut s.login.user));
                s.log(Severity::Info, format_args!("client login failed: \"{}\"", shown_text(&refusal.message)));
                let answer = dialogue.refused(&refusal);
                if !wait.is_zero() {
                    sleep_for(wait.min(WAIT_MAX)).await;
                }
                send_bytes(s, stream, &answer).await?;
                return if wait.is_zero() { Err(SessionClosed) } else { Ok(()) };
            }
            Ok(AuthResult::AskAgain { wait, user, password }) => {
                s.login.user = user.unwrap_or(std::mem::take(&mut s.login.user));
                s.login.password = password.or(s.login.password.take());
                sleep_for(wait.min(WAIT_MAX)).await;
            }
            Ok(AuthResult::Pass { to, name, user, password }) => {
                s.login.user = user.unwrap_or(std::mem::take(&mut s.login.user));
                // A digest cannot be used as a password.
                let own = s.login.password.take().filter(|_| !s.login.method.is_digest());
                s.login.password = password.or(own);
                s.upstream = Some(name);
                let passing = PassPlan { to, login: dialogue.server_login(), pending: std::mem::take(input) };
                if let PassEnd::Failed(answer) = server.passer.run(s, stream, passing).await {
                    send_bytes(s, stream, &answer).await?;
                }
                return Err(SessionClosed);
            }
            Err(AuthFault(words)) => {
                if let Some(words) = words {
                    s.log(Severity::Error, format_args!("{words}"));
                }
                send_bytes(s, stream, internal_error).await?;
                return Err(SessionClosed);
            }
        }
    }
}
