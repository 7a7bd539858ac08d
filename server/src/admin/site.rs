//! The resources of the administration interface.

use std::sync::Arc;

use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, StatusCode};

use super::document::{Facts, status};
use super::page;
use crate::http::{Answer, Peer, Request, Site, Standing, answer, json, text};
use crate::shared::Shared;
use crate::shutdown::PhaseView;
use crate::status::ServerPhase;

/// What the page may load, and who may show it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// The administration interface of a running server.
#[derive(Debug)]
pub(crate) struct AdminSite {
    pub(super) shared: Arc<Shared>,
    pub(super) facts: Facts,
    pub(super) phase: PhaseView,
}

impl Site for AdminSite {
    type Visitor = ();

    fn welcome(&self, _peer: Peer, _standing: Standing) {}

    async fn answer(&self, (): &(), request: Request) -> Answer {
        let mut answer = self.respond(request).await;
        let headers = answer.headers_mut();
        for (name, value) in [
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (CACHE_CONTROL, "no-store"),
            (
                HeaderName::from_static("cross-origin-resource-policy"),
                "same-origin",
            ),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        answer
    }
}

impl AdminSite {
    async fn respond(&self, request: Request) -> Answer {
        if *request.method() != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "There is only GET.");
        }
        const OK: StatusCode = StatusCode::OK;
        match request.uri().path() {
            "/" => answer(OK, "text/html; charset=utf-8", page::INDEX),
            "/page.css" => answer(OK, "text/css; charset=utf-8", page::STYLE),
            "/page.js" => answer(OK, "text/javascript; charset=utf-8", page::SCRIPT),
            "/status.json" => json(OK, &status(&self.shared, &self.facts, self.phase())),
            "/metrics" => metrics(&self.shared),
            "/healthz" => text(OK, "ok"),
            "/readyz" => match self.phase() {
                ServerPhase::Serving => text(OK, "ok"),
                ServerPhase::Draining => text(StatusCode::SERVICE_UNAVAILABLE, "draining"),
            },
            path => match page::module(path) {
                Some(module) => answer(OK, "text/javascript; charset=utf-8", module),
                None => text(StatusCode::NOT_FOUND, "There is nothing here."),
            },
        }
    }

    fn phase(&self) -> ServerPhase {
        if self.phase.is_serving() {
            ServerPhase::Serving
        } else {
            ServerPhase::Draining
        }
    }
}

/// The page for scrapers.
pub(super) fn metrics(shared: &Shared) -> Answer {
    let page = shared.journal.metrics.page(&shared.snapshot());
    answer(
        StatusCode::OK,
        "text/plain; version=0.0.4; charset=utf-8",
        page,
    )
}
