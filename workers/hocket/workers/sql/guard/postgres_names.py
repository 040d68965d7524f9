"""Built-in names of Postgres that attribute notation reaches: see `attributes`.

Taken from PostgreSQL 18; `tests/integration/sql/test_implicit_calls.py` checks them against the server.
"""

from typing import Final

TAKE_ROWS: Final = frozenset(
    """
    any_out anycompatible_out anycompatiblenonarray_out anyelement_out anynonarray_out hash_record
    pg_collation_for pg_column_compression pg_column_size pg_column_toast_chunk_id
    pg_restore_attribute_stats pg_restore_relation_stats pg_typeof record_out record_send
    """.split()
)
"""Functions that can be called with one whole row and are not among those that a query may call."""

TAKE_ONE_ARGUMENT: Final = frozenset(
    """
    any any_in anyarray anyarray_in anyarray_out anyarray_recv anyarray_send anycompatible
    anycompatible_in anycompatiblearray anycompatiblearray_in anycompatiblearray_out
    anycompatiblearray_recv anycompatiblearray_send anycompatiblemultirange
    anycompatiblemultirange_out anycompatiblenonarray anycompatiblenonarray_in
    anycompatiblerange anycompatiblerange_out anyelement anyelement_in anyenum anyenum_in
    anyenum_out anymultirange anymultirange_out anynonarray anynonarray_in anyrange anyrange_out
    array_agg_array_serialize array_agg_serialize array_append_support array_out
    array_prepend_support array_send array_subscript_handler array_subscript_handler_support
    array_typanalyze array_unnest_support bernoulli bit_out bit_send bitnot bittypmodin
    bittypmodout bool_alltrue bool_anytrue boolin boolout boolrecv boolsend box_center box_in
    box_out box_recv box_send bpchar_sortsupport bpcharout bpcharsend bpchartypmodin
    bpchartypmodout brinhandler btboolskipsupport btbpchar_pattern_sortsupport btcharskipsupport
    btequalimage btfloat4sortsupport btfloat8sortsupport bthandler btint2skipsupport
    btint2sortsupport btint4skipsupport btint4sortsupport btint8skipsupport btint8sortsupport
    btnamesortsupport btoidskipsupport btoidsortsupport bttext_pattern_sortsupport
    bttextsortsupport btvarstrequalimage bytea_sortsupport bytea_string_agg_finalfn byteain
    byteaout bytearecv byteasend cash_in cash_out cash_recv cash_send cash_words charin charout
    charrecv charsend cid cidin cidout cidr_in cidr_out cidr_recv cidr_send cidrecv cidsend
    circle_center circle_in circle_out circle_recv circle_send cstring cstring_in cstring_out
    cstring_recv cstring_send date_in date_out date_recv date_send date_skipsupport
    date_sortsupport daterange_canonical dcbrt dexp dispell_init dlog1 dlog10 dround
    dsimple_init dsnowball_init dsqrt dsynonym_init dtrunc elem_contained_by_range_support
    enum_out enum_send event_trigger event_trigger_in event_trigger_out fdw_handler
    fdw_handler_in fdw_handler_out float4abs float4in float4out float4recv float4send float4um
    float4up float8_avg float8_corr float8_covar_pop float8_covar_samp float8_regr_avgx
    float8_regr_avgy float8_regr_intercept float8_regr_r2 float8_regr_slope float8_regr_sxx
    float8_regr_sxy float8_regr_syy float8_stddev_pop float8_stddev_samp float8_var_pop
    float8_var_samp float8abs float8in float8out float8recv float8send float8um float8up
    generate_series_int4_support generate_series_int8_support generate_series_numeric_support
    generate_series_timestamp_support ginhandler gist_circle_compress gist_point_compress
    gist_point_fetch gist_point_sortsupport gist_poly_compress gist_translate_cmptype_common
    gisthandler gtsquery_compress gtsvector gtsvector_compress gtsvector_decompress
    gtsvector_options gtsvectorin gtsvectorout hash_aclitem hash_array hash_multirange
    hash_numeric hash_range hashbool hashbpchar hashbytea hashchar hashcid hashdate hashenum
    hashfloat4 hashfloat8 hashhandler hashinet hashint2 hashint4 hashint8 hashmacaddr
    hashmacaddr8 hashname hashoid hashoidvector hashtext hashtid hashvarlena hashxid hashxid8
    heap_tableam_handler index_am_handler index_am_handler_in index_am_handler_out
    inet_gist_compress inet_gist_fetch inet_in inet_out inet_recv inet_send inetnot int2abs
    int2in int2int4_sum int2not int2out int2recv int2send int2um int2up int2vector int2vectorin
    int2vectorout int2vectorrecv int2vectorsend int4abs int4in int4inc int4not int4out
    int4range_canonical int4recv int4send int4um int4up int8_avg int8_avg_serialize int8abs
    int8dec int8in int8inc int8inc_support int8not int8out int8range_canonical int8recv int8send
    int8um int8up internal internal_in internal_out interval_avg interval_avg_serialize
    interval_hash interval_out interval_send interval_sum interval_support interval_um
    intervaltypmodin intervaltypmodout ishorizontal isvertical json_agg_finalfn json_in
    json_object_agg_finalfn json_out json_recv json_send jsonb_agg_finalfn jsonb_hash jsonb_in
    jsonb_object_agg_finalfn jsonb_out jsonb_recv jsonb_send jsonb_subscript_handler jsonpath_in
    jsonpath_out jsonpath_recv jsonpath_send language_handler language_handler_in
    language_handler_out line_horizontal line_in line_out line_recv line_send line_vertical
    lseg_center lseg_horizontal lseg_in lseg_length lseg_out lseg_recv lseg_send lseg_vertical
    macaddr8_in macaddr8_not macaddr8_out macaddr8_recv macaddr8_send macaddr8_set7bit
    macaddr_in macaddr_not macaddr_out macaddr_recv macaddr_send macaddr_sortsupport
    multirange_gist_compress multirange_out multirange_send multirange_typanalyze mxid_age
    namein nameout namerecv namesend network_sortsupport network_subset_support numeric_abs
    numeric_avg numeric_avg_serialize numeric_exp numeric_inc numeric_ln numeric_out
    numeric_poly_avg numeric_poly_serialize numeric_poly_stddev_pop numeric_poly_stddev_samp
    numeric_poly_sum numeric_poly_var_pop numeric_poly_var_samp numeric_send numeric_serialize
    numeric_sortsupport numeric_sqrt numeric_stddev_pop numeric_stddev_samp numeric_sum
    numeric_support numeric_uminus numeric_uplus numeric_var_pop numeric_var_samp
    numerictypmodin numerictypmodout oidin oidout oidrecv oidsend oidvector oidvectorin
    oidvectorout oidvectorrecv oidvectorsend oidvectortypes path_in path_length path_npoints
    path_out path_recv path_send pclose point_in point_out point_recv point_send poly_center
    poly_in poly_npoints poly_out poly_recv poly_send popen prsd_end prsd_lextype
    range_contains_elem_support range_out range_send range_sortsupport range_typanalyze
    raw_array_subscript_handler record refcursor regclass regclassin regclassout regclassrecv
    regclasssend regcollation regcollationin regcollationout regcollationrecv regcollationsend
    regconfigin regconfigout regconfigrecv regconfigsend regdictionary regdictionaryin
    regdictionaryout regdictionaryrecv regdictionarysend regnamespace regnamespacein
    regnamespaceout regnamespacerecv regnamespacesend regoper regoperator regoperatorin
    regoperatorout regoperatorrecv regoperatorsend regoperin regoperout regoperrecv regopersend
    regproc regprocedure regprocedurein regprocedureout regprocedurerecv regproceduresend
    regprocin regprocout regprocrecv regprocsend regrole regrolein regroleout regrolerecv
    regrolesend regtype regtypein regtypeout regtyperecv regtypesend shell_in shell_out
    similar_to_escape spg_poly_quad_compress spghandler string_agg_finalfn string_agg_serialize
    system table_am_handler table_am_handler_in table_am_handler_out text_starts_with_support
    texticlike_support texticregexeq_support textin textlike_support textout textrecv
    textregexeq_support textsend thesaurus_init tidin tidout tidrecv tidsend time_hash time_out
    time_send time_support timestamp_hash timestamp_out timestamp_send timestamp_skipsupport
    timestamp_sortsupport timestamp_support timestamptypmodin timestamptypmodout
    timestamptz_hash timestamptz_out timestamptz_send timestamptztypmodin timestamptztypmodout
    timetypmodin timetypmodout timetz_hash timetz_out timetz_send timetztypmodin timetztypmodout
    trigger trigger_in trigger_out ts_typanalyze tsm_handler tsm_handler_in tsm_handler_out
    tsquery_not tsqueryin tsqueryout tsqueryrecv tsquerysend tsvectorin tsvectorout tsvectorrecv
    tsvectorsend unknown unknownin unknownout unknownrecv unknownsend uuid_hash uuid_in uuid_out
    uuid_recv uuid_send uuid_skipsupport uuid_sortsupport varbit_out varbit_send varbit_support
    varbittypmodin varbittypmodout varchar_support varcharout varcharsend varchartypmodin
    varchartypmodout void void_in void_out void_recv void_send window_cume_dist_support
    window_dense_rank_support window_ntile_support window_percent_rank_support
    window_rank_support window_row_number_support xid8in xid8out xid8recv xid8send xidin xidout
    xidrecv xidsend xml_in xml_out xml_recv xml_send
    """.split()
)
"""Functions and types that can be called with one argument, are not among those that a query may
call, and are not denied by name (`functions.DENIED`)."""
