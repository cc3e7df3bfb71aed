"""The page: a cluster at a glance, from a file or live.

`document` is what it shows and `changes` how that changes. The page itself is in `assets`, and gets
its document in one of two ways:

- In a file, `<script type="application/json" id="document">` has the gzipped `Document` in base64.
- Live, there is no such element. The fragment of the address is a code, which `GET /api/session`
  with `Authorization: Code CODE` exchanges for `{"key": KEY}`. All other requests have
  `Authorization: Bearer KEY`; an error is `{"sentence": "..."}`.

  - `GET /api/document`: the `Document` with one moment, and an `id`.
  - `GET /api/changes?after=ID`: server-sent events, each with its `id`: `change` (a `Change`),
    `behind` (`{"seconds": 12, "sentence": "..."}`; 0 seconds: live again), `again` (get the
    document again) and `over` (a sentence; the host has ended).
  - `GET /api/gang?id=NAMESPACE/NAME`: its `Detail`. `GET /api/health`: the `Health`.
  - `POST /api/ask`: `{"gang": ID}` asks what would help (`{"suggestions": [...], "holders": ""}`),
    and `{"manifest": TEXT}` what if (the output of `kubectl gangsched plan -o json`).
"""
