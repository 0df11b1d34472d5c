//! Calls of gRPC: their fields, messages, deadlines and answers.

use figures::rng::Rng;
use http_types::Method;

use super::PreparedRequest;
use crate::engine::grpc::{GrpcJob, MessageForm};
use crate::engine::session::SessionVariables;
use crate::engine::template::RequestTemplate;

impl PreparedRequest {
    /// Makes the request a call of gRPC, whose body is the JSON of its messages and which ends within `timeout` seconds.
    /// Fails if the JSON has no such message; one with variables is looked at when it is sent.
    pub fn for_grpc(mut self, form: MessageForm, job: &GrpcJob, timeout: f64) -> Result<PreparedRequest, String> {
        (self.method, self.method_name, self.is_grpc) = (Method::Post, b"POST".to_vec(), true);
        let timeout = grpc_timeout(timeout);
        let mut own =
            vec![("Content-Type", "application/grpc"), ("TE", "trailers"), ("grpc-timeout", timeout.as_str())];
        if job.gzip {
            own.extend([("grpc-encoding", "gzip"), ("grpc-accept-encoding", "gzip,identity")]);
        }
        self.answer_form = self.wants_body().then(|| form.clone());
        for (name, value) in own {
            if !self.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes())) {
                self.headers.push((name.as_bytes().to_vec(), RequestTemplate::verbatim(value.as_bytes())));
            }
        }
        let mut frames = Vec::new();
        match self.body.constant() {
            Some(json) => {
                form.frame_messages(json, &mut frames)?;
                self.body = RequestTemplate::verbatim(&frames);
            }
            None => {
                if !self.body.has_variables() {
                    let mut json = Vec::new();
                    self.body.fill(0, &SessionVariables::default(), &mut Rng::new(0), &mut json);
                    form.frame_messages(&json, &mut frames)?;
                }
                self.form = Some(form);
            }
        }
        Ok(self.settle())
    }

    /// Reads the messages of an answer to a call as JSON: an object, or an array of a stream. `None` if they are not of the
    /// method.
    pub fn answer_json(&self, body: &[u8]) -> Option<Vec<u8>> {
        self.answer_form.as_ref()?.answer_json(body)
    }

    /// Tells whether the status of a call is the expected one.
    pub fn allows_code(&self, code: u16) -> bool {
        if self.expect_codes.is_empty() { code == 0 } else { self.expect_codes.contains(&code) }
    }

    #[inline]
    pub fn is_grpc(&self) -> bool {
        self.is_grpc
    }
}

/// Value of `grpc-timeout`: at most eight digits and a unit (gRPC over HTTP/2, "Requests").
fn grpc_timeout(seconds: f64) -> String {
    for (unit, each) in [("u", 1e6), ("m", 1e3), ("S", 1.0), ("M", 1.0 / 60.0)] {
        let count = (seconds * each).ceil();
        if count < 1e8 {
            return format!("{}{unit}", count.max(1.0));
        }
    }
    "99999999H".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_of_calls_have_eight_digits() {
        for (seconds, text) in
            [(5.0, "5000000u"), (1e-9, "1u"), (120.0, "120000m"), (200_000.0, "200000S"), (1e30, "99999999H")]
        {
            assert_eq!(grpc_timeout(seconds), text);
        }
    }
}
