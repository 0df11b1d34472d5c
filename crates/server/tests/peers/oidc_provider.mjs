// An OpenID Provider by the npm package oidc-provider, which the test can let misbehave: GET /misbehave?how=NAME.
// Arguments: its port, and the port of the server whose users it logs in.
import { generateKeyPairSync } from 'node:crypto';
import Provider from 'oidc-provider';

const [port, own] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const site = `http://127.0.0.1:${own}`;

const key = (type, options, extra) =>
  ({ ...generateKeyPairSync(type, options).privateKey.export({ format: 'jwk' }), use: 'sig', ...extra });
const keys = [
  key('rsa', { modulusLength: 2048 }, { kid: 'rsa' }),
  key('ec', { namedCurve: 'P-256' }, { kid: 'ec', alg: 'ES256' }),
  key('ed25519', {}, { kid: 'ed' }),
];

const client = (name, more) => ({
  client_id: name, client_secret: 'secret of a client', redirect_uris: [`${site}/back/${name}`],
  post_logout_redirect_uris: [`${site}/left`], grant_types: ['authorization_code', 'refresh_token'],
  response_types: ['code'], backchannel_logout_uri: `${site}/by-provider/${name}`, ...more,
});

const provider = new Provider(issuer, {
  clients: [
    client('rs256', { backchannel_logout_session_required: true }),
    client('ps256', { id_token_signed_response_alg: 'PS256' }),
    client('es256', { id_token_signed_response_alg: 'ES256' }),
    client('eddsa', { id_token_signed_response_alg: 'EdDSA' }),
    client('public', { token_endpoint_auth_method: 'none', client_secret: undefined }),
    client('userinfo', { userinfo_signed_response_alg: 'RS256' }),
  ],
  jwks: { keys },
  pkce: { required: () => true },
  claims: { openid: ['sub'], email: ['email'] },
  scopes: ['openid', 'offline_access', 'email'],
  enabledJWA: { idTokenSigningAlgValues: ['RS256', 'PS256', 'ES256', 'EdDSA'], userinfoSigningAlgValues: ['RS256'] },
  features: {
    backchannelLogout: { enabled: true },
    devInteractions: { enabled: true },
    jwtUserinfo: { enabled: true },
    rpInitiatedLogout: { enabled: true },
  },
  cookies: { keys: ['a secret of the provider'] },
  // Without the package's guard against addresses of this machine.
  fetch: (url, options) => fetch(url, { ...options, dispatcher: undefined }),
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, email: `${id}@example.com` }) }),
});

const part = (object) => Buffer.from(JSON.stringify(object)).toString('base64url');
const payload = (token) => JSON.parse(Buffer.from(token.split('.')[1], 'base64url'));
let how = '';
const token = {
  none: (body) => { body.id_token = `${part({ alg: 'none' })}.${part(payload(body.id_token))}.`; },
  hmac: (body) => { body.id_token = body.id_token.replace(/^[^.]+/, part({ alg: 'HS256' })); },
  claims: (body) => {
    const parts = body.id_token.split('.');
    parts[1] = part({ ...payload(body.id_token), sub: 'admin' });
    body.id_token = parts.join('.');
  },
  cut: (body) => { body.id_token = body.id_token.slice(0, -20); },
  missing: (body) => { delete body.id_token; },
  access: (body) => { body.access_token = `${body.access_token}x`; },
  number: (body) => { body.id_token = 1; },
};
provider.use(async (ctx, next) => {
  if (ctx.path === '/misbehave') {
    how = ctx.query.how;
    ctx.body = 'ok';
    return;
  }
  await next();
  const json = typeof ctx.body === 'object' && ctx.body !== null;
  if (ctx.path === '/token' && json && ctx.body.id_token && token[how]) token[how](ctx.body);
  if (ctx.path === '/token' && how === 'html') { ctx.type = 'html'; ctx.body = '<p>maintenance</p>'; }
  if (ctx.path === '/token' && how === 'busy') { ctx.status = 503; ctx.body = { error: 'temporarily_unavailable' }; }
  if (ctx.path === '/me' && how === 'user') { ctx.type = 'json'; ctx.body = { sub: 'somebody-else' }; }
  if (ctx.path === '/me' && how === 'info') { ctx.status = 500; ctx.body = 'out of order'; }
});
provider.listen(Number(port), '127.0.0.1');
