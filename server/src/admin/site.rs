//! The resources of the administration interface.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridhaul_shares::Network;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY, SET_COOKIE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, StatusCode};
use tracing::warn;

use super::access::{Access, COOKIE_NAME, Token, Visitor, check_host, check_origin, check_post};
use super::actions::{Action, Actions, failed};
use super::document::{Facts, status};
use super::{form, page};
use crate::http::{Answer, Peer, Request, Site, Standing, answer, body, json, refusal, text};
use crate::shared::Shared;
use crate::shutdown::PhaseView;
use crate::status::ServerPhase;
use crate::telemetry::Notices;

const OK: StatusCode = StatusCode::OK;

/// What the page may load, and who may show it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// The pause after a wrong secret. Longer than guessing needs: a secret has at least 16 bytes.
const WRONG_SECRET: Duration = Duration::from_secs(1);

/// The administration interface of a running server.
#[derive(Debug)]
pub(crate) struct AdminSite {
    pub(super) shared: Arc<Shared>,
    pub(super) facts: Facts,
    pub(super) phase: PhaseView,
    pub(super) actions: Actions,
    pub(super) access: Access,
    /// Bounds the lines in the log about refusals.
    pub(super) notices: Notices,
}

impl Site for AdminSite {
    type Visitor = Visitor;

    fn welcome(&self, peer: Peer, standing: Standing) -> Visitor {
        Visitor::new(peer, standing)
    }

    async fn answer(&self, visitor: &Visitor, request: Request) -> Answer {
        let answer = self.respond(visitor, request).await;
        let mut answer = answer.unwrap_or_else(|refused| *refused);
        let headers = answer.headers_mut();
        for (name, value) in [
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            // Without a referrer the browser would send the form for the secret with `Origin: null` (Fetch 3.2), which is refused.
            (REFERRER_POLICY, "same-origin"),
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
            None if path == "/login" => self.log_in(visitor, request).await,
            None if path == "/logout" => self.log_out(visitor, &request).await,
            None => self.show(visitor, &request).await,
        }
    }

    async fn show(&self, visitor: &Visitor, request: &Request) -> Result<Answer, Box<Answer>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(not_allowed("GET, HEAD"));
        }
        Ok(match request.uri().path() {
            "/" => self.page(visitor, request).await,
            "/page.css" => answer(OK, "text/css; charset=utf-8", page::STYLE),
            "/page.js" => answer(OK, "text/javascript; charset=utf-8", page::SCRIPT),
            "/status.json" => {
                check_origin(request.headers())?;
                self.access.admit(visitor, request.headers()).await?;
                let document = status(&self.shared, &self.facts, self.phase());
                debug_assert!(document.is_bounded(), "the lists have limits");
                json(OK, &document)
            }
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
        })
    }

    /// The page has no data of the server, so each client may have it: it shows why the data are refused. Where a secret is
    /// needed, it begins with the form for that.
    async fn page(&self, visitor: &Visitor, request: &Request) -> Answer {
        const HTML: &str = "text/html; charset=utf-8";
        if self.access.token.is_some()
            && self.access.admit(visitor, request.headers()).await.is_err()
        {
            let mut form = answer(StatusCode::UNAUTHORIZED, HTML, page::LOGIN);
            let bearer = HeaderValue::from_static("Bearer");
            form.headers_mut().insert(WWW_AUTHENTICATE, bearer);
            return form;
        }
        answer(OK, HTML, page::INDEX)
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
        let admitted = self.access.admit(visitor, headers).await;
        let by = admitted.inspect_err(|refused| {
            if let Some(untold) = self.untold(visitor) {
                let status = refused.status().as_u16();
                warn!(client = %visitor.peer, ?action, status, untold, "an action was refused");
            }
        })?;
        if action == Action::Upgrade && !visitor.is_local() {
            let error = "only a client at the Unix socket may order an upgrade";
            return Err(Box::new(failed(StatusCode::FORBIDDEN, error)));
        }
        let body = body(request).await?;
        Ok(self.actions.act(by, action, &body).await)
    }

    /// Takes the secret from the form, and gives a cookie for it.
    async fn log_in(&self, visitor: &Visitor, request: Request) -> Result<Answer, Box<Answer>> {
        if *request.method() != Method::POST {
            return Err(not_allowed("POST"));
        }
        check_origin(request.headers())?;
        let kind = request.headers().get(CONTENT_TYPE);
        let is_form = kind.is_some_and(|kind| {
            kind.as_bytes()
                .starts_with(b"application/x-www-form-urlencoded")
        });
        let Some(token) = self.access.token.as_ref().filter(|_| is_form) else {
            let error = "there is no form for a secret";
            return Err(Box::new(failed(StatusCode::BAD_REQUEST, error)));
        };
        let body = body(request).await?;
        let shown = form::value(&body, "token").unwrap_or_default();
        if !token.is(&shown) {
            if let Some(untold) = self.untold(visitor) {
                warn!(client = %visitor.peer, untold, "a wrong secret was shown to the administration");
            }
            tokio::time::sleep(WRONG_SECRET).await;
            let html = "text/html; charset=utf-8";
            return Err(Box::new(answer(
                StatusCode::UNAUTHORIZED,
                html,
                page::LOGIN,
            )));
        }
        give_cookie(token, visitor.is_tls())
    }

    /// Ends the validity of all cookies.
    async fn log_out(&self, visitor: &Visitor, request: &Request) -> Result<Answer, Box<Answer>> {
        if *request.method() != Method::POST {
            return Err(not_allowed("POST"));
        }
        check_origin(request.headers())?;
        self.access.admit(visitor, request.headers()).await?;
        if let Some(token) = &self.access.token {
            token.forget();
        }
        Ok(to_page("Logged out."))
    }

    /// Whether a refusal of this client gets a line in the log; then the number of refusals without a line before.
    fn untold(&self, visitor: &Visitor) -> Option<u64> {
        let address = match &visitor.peer {
            Peer::Tcp { peer, .. } => peer.ip(),
            Peer::Unix { .. } => Ipv6Addr::LOCALHOST.into(),
        };
        self.notices.tell(Network::of(address), Instant::now())
    }

    fn phase(&self) -> ServerPhase {
        if self.phase.is_serving() {
            ServerPhase::Serving
        } else {
            ServerPhase::Draining
        }
    }
}

/// Leads to the page, with a cookie that only this site gets and that scripts cannot read.
fn give_cookie(token: &Token, is_tls: bool) -> Result<Answer, Box<Answer>> {
    let failed = |_| refusal(StatusCode::INTERNAL_SERVER_ERROR, "There is no cookie now.");
    let value = token.give().map_err(failed)?;
    let secure = if is_tls { "; Secure" } else { "" };
    let cookie = format!("{COOKIE_NAME}={value}; HttpOnly; SameSite=Strict; Path=/{secure}");
    let mut answer = to_page("Logged in.");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
    Ok(answer)
}

fn to_page(line: &str) -> Answer {
    let mut answer = text(StatusCode::SEE_OTHER, line);
    let page = HeaderValue::from_static("/");
    answer.headers_mut().insert(LOCATION, page);
    answer
}

fn not_allowed(methods: &'static str) -> Box<Answer> {
    let line = format!("This takes {methods} only.");
    let mut answer = refusal(StatusCode::METHOD_NOT_ALLOWED, &line);
    let methods = HeaderValue::from_static(methods);
    answer.headers_mut().insert(ALLOW, methods);
    answer
}

/// The page for scrapers.
pub(super) fn metrics(shared: &Shared) -> Answer {
    let page = shared.journal.metrics.page(&shared.snapshot());
    answer(OK, "text/plain; version=0.0.4; charset=utf-8", page)
}
