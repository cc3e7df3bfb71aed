// @ts-check
// The document of the page, as `document.py` defines it: a field that has its default is left out.

/**
 * @typedef {{ resource: string, total: number, free?: number, users?: Record<string, number> }} Devices
 * @typedef {{ gang: string, startS?: number | null, kind?: string }} Reservation
 * @typedef {object} PageNode
 * @property {string[]} [path]
 * @property {string} [product]
 * @property {Devices[]} [devices]
 * @property {string} [closed]
 * @property {string[]} [taints]
 * @property {Reservation[]} [reserved]
 * @property {string[]} [nominated]
 * @property {string[]} [held]
 */

/**
 * @typedef {{ pods: number, requests?: Record<string, string> }} Need
 * @typedef {{ resource: string, amount?: string, freeOnOneNode?: string }} Lack
 * @typedef {object} PageGang
 * @property {string} namespace
 * @property {string} name
 * @property {boolean} [waits]
 * @property {string} [sentence]
 * @property {string} [phase]
 * @property {string} [reason]
 * @property {number} [pods]
 * @property {number} [bound]
 * @property {number | null} [minMember]
 * @property {number | null} [priority]
 * @property {Need[]} [needs]
 * @property {Lack | null} [lacks]
 * @property {number | null} [createdS]
 * @property {number | null} [waitingSinceS]
 * @property {number | null} [startedS]
 * @property {number | null} [runTimeS]
 * @property {number | null} [expectedEndS]
 * @property {number | null} [promisedS]
 * @property {string} [promise]
 * @property {Reservation | null} [reserved]
 * @property {boolean} [broken]
 * @property {string[]} [problems]
 * @property {string[]} [group]
 * @property {string} [parent]
 */

/**
 * @typedef {{ name: string, state: string, node?: string, reason?: string, message?: string }} PageMember
 * @typedef {{ domain: string, holds: number, lacks: number, refutedBy?: string }} PageDomain
 * @typedef {{ atS: number, what: string, firstS?: number | null, times?: number, message?: string }} PageEvent
 * @typedef {object} Detail
 * @property {PageMember[]} [members]
 * @property {PageDomain[]} [domains]
 * @property {PageEvent[]} [events]
 * @property {string} [eventsFrom]
 * @property {number | null} [eventsSinceS]
 * @property {string} [next]
 * @property {string} [holders]
 * @property {string} [notCreated]
 * @property {string} [source]
 * @property {string} [instead]
 */

/**
 * @typedef {object} Bar
 * @property {'waited' | 'happened' | 'expected' | 'promised'} kind
 * @property {number | null} [fromS]
 * @property {number | null} [toS]
 * @property {boolean} [late]
 * @property {string[]} [nodes]
 */

/**
 * @typedef {object} Total
 * @property {string} resource
 * @property {number} total
 * @property {number} free
 * @property {number} [mostFree]
 * @property {number} [nodes]
 * @property {Record<string, number>} [closed]
 */

/**
 * @typedef {{ what: string, sentence: string, isRight?: boolean }} Unknown
 * @typedef {{ check: string, sentence: string, todo?: string }} Finding
 * @typedef {{ gang: string, promisedS: number, startedS?: number | null }} Promised
 * @typedef {object} Health
 * @property {Finding[]} [findings]
 * @property {Record<string, string>} [notChecked]
 * @property {Record<string, string>} [facts]
 * @property {Promised[]} [promises]
 */

/**
 * @typedef {[string, number]} Place
 * @typedef {object} Moment
 * @property {number} atS
 * @property {string} [sentence]
 * @property {string} [remark]
 * @property {string[]} [levels]
 * @property {Total[]} [totals]
 * @property {Record<string, PageNode>} [nodes]
 * @property {Record<string, PageGang>} [gangs]
 * @property {Place[]} [queue]
 * @property {'scheduler' | 'age'} [order]
 * @property {Record<string, Bar[]>} [bars]
 * @property {Record<string, Detail>} [details]
 * @property {Health} [health]
 * @property {Unknown[]} [unknown]
 */

/**
 * @typedef {{ left?: string[], parts?: { at?: number, dropped?: number, joined?: Place[] }[] }} QueueChange
 * @typedef {object} Change
 * @property {number} atS
 * @property {string | null} [sentence]
 * @property {string | null} [remark]
 * @property {string[] | null} [levels]
 * @property {Total[] | null} [totals]
 * @property {Record<string, PageNode | null>} [nodes]
 * @property {Record<string, PageGang | null>} [gangs]
 * @property {QueueChange | QueueChange[] | null} [queue]
 * @property {'scheduler' | 'age' | null} [order]
 * @property {Record<string, Bar[] | null>} [bars]
 * @property {Record<string, Detail | null>} [details]
 * @property {Health | null} [health]
 * @property {Unknown[] | null} [unknown]
 */

/**
 * @typedef {object} Document
 * @property {number} [format]
 * @property {'live' | 'snapshot' | 'replay' | 'simulation'} source
 * @property {'wall' | 'simulated'} [clock]
 * @property {string} [title]
 * @property {string} [user]
 * @property {string} [madeBy]
 * @property {string} [namespace]
 * @property {Moment} moment
 * @property {Change[]} [changes]
 */

export {};
