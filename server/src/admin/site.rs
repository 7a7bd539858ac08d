//! The resources of the administration interface.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridhaul_shares::Network;
use hyper::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName,
    HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, StatusCode};
use tracing::warn;

use super::access::{Access, Visitor, check_host, check_origin, check_post};
use super::actions::{Action, Actions, failed};
use super::document::{Facts, status};
use super::page;
use crate::http::{
    Answer, Caller, Paced, Peer, Request, Site, Standing, answer, body, json, refusal, text,
};
use crate::shared::Shared;
use crate::shutdown::PhaseView;
use crate::status::ServerPhase;
use crate::telemetry::{Notices, Snapshot};

const OK: StatusCode = StatusCode::OK;

/// What the page may load, and who may show it. Its forms are sent by the script, so none may be sent without it: the secret
/// would be in the address.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// The pause after a wrong secret. Longer than guessing needs: a secret has at least 16 bytes.
const WRONG_SECRET: Duration = Duration::from_secs(1);

/// The administration interface of a running server.
#[derive(Debug)]
pub(crate) struct AdminSite {
    pub(super) shared: Arc<Shared>,
    pub(super) facts: Arc<Facts>,
    pub(super) phase: PhaseView,
    /// The status document.
    pub(super) status: Paced,
    pub(super) actions: Actions,
    pub(super) access: Access,
    /// Bounds the lines in the log about refusals.
    pub(super) notices: Notices,
}

impl Site for AdminSite {
    type Visitor = Visitor;

    async fn identify(&self, peer: &Peer) -> Caller {
        self.access.identify(peer).await
    }

    fn welcome(&self, peer: Peer, caller: Caller, standing: Standing) -> Visitor {
        Visitor::new(peer, caller, standing)
    }

    async fn answer(&self, visitor: &Visitor, request: Request) -> Answer {
        let answer = self.respond(visitor, request).await;
        let mut answer = answer.unwrap_or_else(|refused| *refused);
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
    async fn respond(&self, visitor: &Visitor, request: Request) -> Result<Answer, Box<Answer>> {
        if !visitor.is_local() {
            check_host(request.headers(), &self.access.names)?;
        }
        let path = request.uri().path();
        match Action::of(path) {
            Some(action) => self.respond_to_action(visitor, action, request).await,
            None => self.show(visitor, &request).await,
        }
    }

    async fn show(&self, visitor: &Visitor, request: &Request) -> Result<Answer, Box<Answer>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(not_allowed("GET, HEAD"));
        }
        Ok(match request.uri().path() {
            // The page has no data of the server, so each client may have it: it asks for the secret where one is needed, and
            // shows why the data are refused.
            "/" => answer(OK, "text/html; charset=utf-8", page::INDEX),
            "/page.css" => answer(OK, "text/css; charset=utf-8", page::STYLE),
            "/page.js" => answer(OK, "text/javascript; charset=utf-8", page::SCRIPT),
            "/status.json" => {
                check_origin(request.headers())?;
                self.admit(visitor, request.headers(), None).await?;
                self.status().await
            }
            "/metrics" => metrics(&self.shared).await,
            "/healthz" => text(OK, "ok"),
            "/readyz" => match phase(&self.phase) {
                ServerPhase::Serving => text(OK, "ok"),
                ServerPhase::Draining => text(StatusCode::SERVICE_UNAVAILABLE, "draining"),
            },
            path => match page::module(path) {
                Some(module) => answer(OK, "text/javascript; charset=utf-8", module),
                None => text(StatusCode::NOT_FOUND, "There is nothing here."),
            },
        })
    }

    /// The name of the administrator. A refusal of an action or of a proof gets a line in the log.
    async fn admit(
        &self,
        visitor: &Visitor,
        headers: &HeaderMap,
        action: Option<Action>,
    ) -> Result<String, Box<Answer>> {
        let refused = match self.access.admit(visitor, headers).await {
            Ok(by) => return Ok(by),
            Err(refused) => refused,
        };
        let is_wrong_secret =
            refused.status() == StatusCode::UNAUTHORIZED && headers.contains_key(AUTHORIZATION);
        let (client, status) = (&visitor.peer, refused.status().as_u16());
        if (is_wrong_secret || action.is_some() || visitor.has_certificate())
            && let Some(untold) = self.untold(visitor)
        {
            match action {
                _ if is_wrong_secret => {
                    warn!(%client, untold, "a wrong secret was shown to the administration");
                }
                Some(action) => warn!(%client, ?action, status, untold, "an action was refused"),
                None => {
                    warn!(%client, untold, "the administration does not accept a certificate");
                }
            }
        }
        if is_wrong_secret {
            tokio::time::sleep(WRONG_SECRET).await;
        }
        Err(refused)
    }

    async fn respond_to_action(
        &self,
        visitor: &Visitor,
        action: Action,
        request: Request,
    ) -> Result<Answer, Box<Answer>> {
        if *request.method() != Method::POST {
            return Err(not_allowed("POST"));
        }
        let headers = request.headers();
        check_origin(headers)?;
        check_post(headers)?;
        let by = self.admit(visitor, headers, Some(action)).await?;
        if action == Action::Upgrade && !visitor.is_local() {
            let error = "only a client at the Unix socket may order an upgrade";
            return Err(Box::new(failed(StatusCode::FORBIDDEN, error)));
        }
        let body = body(request).await?;
        Ok(self.actions.act(by, action, &body).await)
    }

    /// Whether a refusal of this client gets a line in the log; then the number of refusals without a line before.
    fn untold(&self, visitor: &Visitor) -> Option<u64> {
        let address = match &visitor.peer {
            Peer::Tcp { peer, .. } => peer.ip(),
            Peer::Unix { .. } => Ipv6Addr::LOCALHOST.into(),
        };
        self.notices.tell(Network::of(address), Instant::now())
    }

    /// The status document. Each channel of a transfer costs system calls.
    async fn status(&self) -> Answer {
        let (shared, facts) = (Arc::clone(&self.shared), Arc::clone(&self.facts));
        let view = self.phase.clone();
        let make = move || {
            let document = status(&shared, &facts, phase(&view));
            debug_assert!(document.is_bounded(), "the lists have limits");
            json(OK, &document)
        };
        self.status.answer(make).await
    }
}

fn phase(view: &PhaseView) -> ServerPhase {
    match view.is_serving() {
        true => ServerPhase::Serving,
        false => ServerPhase::Draining,
    }
}

fn not_allowed(methods: &'static str) -> Box<Answer> {
    let line = format!("This takes {methods} only.");
    let mut answer = refusal(StatusCode::METHOD_NOT_ALLOWED, &line);
    let methods = HeaderValue::from_static(methods);
    answer.headers_mut().insert(ALLOW, methods);
    answer
}

/// The page for scrapers. Each channel of a transfer costs system calls.
pub(super) async fn metrics(shared: &Arc<Shared>) -> Answer {
    let all = Arc::clone(shared);
    let make = move || {
        let now = Snapshot {
            usage: all.usage(),
            ..all.snapshot()
        };
        let metrics = &all.journal.metrics;
        metrics.count_channel_events(&all.live.new_events());
        let page = metrics.page(&now);
        answer(OK, "text/plain; version=0.0.4; charset=utf-8", page)
    };
    shared.metrics_page.answer(make).await
}
