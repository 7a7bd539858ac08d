//! Responses, and the bodies of requests.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

/// A request whose body has not been read.
pub(crate) type Request = hyper::Request<Incoming>;

/// A response.
pub(crate) type Answer = Response<Full<Bytes>>;

/// The bytes of the largest body that a request may have.
const BODY_BYTES: usize = 4096;

/// The time in which a body must arrive.
const BODY_TIME: Duration = Duration::from_secs(10);

/// A response with a body of this type.
pub(crate) fn answer(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    answer
}

/// A response with a line of text.
pub(crate) fn text(status: StatusCode, line: &str) -> Answer {
    answer(status, "text/plain; charset=utf-8", format!("{line}\n"))
}

/// A response with a JSON document.
pub(crate) fn json(status: StatusCode, document: &impl Serialize) -> Answer {
    match serde_json::to_vec(document) {
        Ok(body) => answer(status, "application/json", body),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// A response that refuses, with a line of text. Boxed, because errors are returned through many calls.
pub(crate) fn refusal(status: StatusCode, line: &str) -> Box<Answer> {
    Box::new(text(status, line))
}

/// The body of a request, if it is small and arrives in time.
///
/// # Errors
///
/// The response that says what is wrong.
pub(crate) async fn body(request: Request) -> Result<Bytes, Box<Answer>> {
    let body = Limited::new(request.into_body(), BODY_BYTES).collect();
    match tokio::time::timeout(BODY_TIME, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("A body has at most {BODY_BYTES} bytes."),
        )),
        Ok(Err(error)) => Err(refusal(StatusCode::BAD_REQUEST, &error.to_string())),
        Err(_) => Err(refusal(
            StatusCode::REQUEST_TIMEOUT,
            "The body did not arrive in time.",
        )),
    }
}
